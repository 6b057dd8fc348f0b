"""FP8 implementations under test. Adding one: a file here that implements the protocol, and a line in ``PROVIDERS``."""

from collections.abc import Mapping

PROVIDERS: Mapping[str, str] = {
    "reference": "harness.providers.reference:ReferenceProvider",
    "transformer_engine": "harness.providers.transformer_engine:TransformerEngineProvider",
}
