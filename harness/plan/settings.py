"""The settings that a matrix may give a provider. A provider that isn't listed here takes none."""

from __future__ import annotations

from collections.abc import Mapping

from harness.plan.recipes import Named
from harness.plan.scalars import Boolean, Text


class ProviderSettings(Named):
    """A provider without settings. ``name`` may carry faults: ``reference+leaky_exit``."""

    name: Text


class ReferenceSettings(ProviderSettings):
    """The reference system: whether it may compute a recipe's exact arithmetic where no kernel exists, and
    whether it runs on the CPU, as if that were it, an architecture that is not here."""

    emulate: Boolean = True
    rehearse: Boolean = False


PROVIDER_MODELS: Mapping[str, type[ProviderSettings]] = {"reference": ReferenceSettings}
