"""Programs whose eager code is known to be wrong: the oracle judges the compiled run, and the defect must be seen."""

from __future__ import annotations

from collections.abc import Sequence

from harness.judge.numerics_bench import Bench
from harness.judge.numerics_program import check_program
from harness.judge.oracle_provider import OracleUnsupported
from harness.observe.errors import is_documented
from harness.observe.types import Observations
from harness.program import Expects
from harness.types import Axes, Finding

CHECK = "numerics.eager_wrong"


def judge_wrong_eager(obs: Observations, axes: Axes, expects: Expects) -> tuple[Sequence[Finding], str]:
    """Findings of ``numerics.eager_wrong``, and a note on how the defect showed.

    Each eager run must have ended with ``expects.eager_error``, or its output or a gradient must lie outside of what
    the oracle allows. A run that is right says that the documented defect is gone, and that the case's word is stale.
    """
    wanted = f"eager code that is wrong as documented: {expects.eager_is_wrong}"
    if obs.eager_errors:
        for error in obs.eager_errors:
            if not expects.eager_error or not is_documented(error, expects.eager_error, ""):
                return [Finding(CHECK, wanted, f"{error.type}: {error.message}", error.phase, error.site)], ""
        return (), f"eager is wrong as documented ({expects.eager_is_wrong}): {obs.eager_errors[0].type}"
    if obs.eager is None:
        return (), ""  # it never ran: error.unexpected or observe.complete says so
    try:
        seen = check_program(Bench(obs, axes, runs=("eager",)))
    except OracleUnsupported as error:
        return (), f"{CHECK} not judged: {error}"
    if not seen:
        return [Finding(CHECK, wanted, "output and gradients as the oracle has them", "eager")], ""
    first = seen[0]
    return (), f"eager is wrong as documented ({expects.eager_is_wrong}): {first.where}, {first.got}"
