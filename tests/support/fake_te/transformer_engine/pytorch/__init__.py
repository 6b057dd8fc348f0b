from transformer_engine.pytorch.quantization import autocast

__all__ = ["autocast"]
