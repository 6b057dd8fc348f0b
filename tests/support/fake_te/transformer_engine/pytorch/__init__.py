from transformer_engine.pytorch.distributed import checkpoint
from transformer_engine.pytorch.quantization import autocast

__all__ = ["autocast", "checkpoint"]
