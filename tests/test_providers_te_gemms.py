"""Kernel lists recorded on an H200 (Transformer Engine 2.20.2, torch 2.11, CUDA 13.0), as they were and spoilt."""

from __future__ import annotations

from collections import Counter

import pytest

from harness.providers.te_gemms import classify, operands_of
from harness.torch_compat import ProfiledKernel, ProfiledOp

E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"

# What ran around the GEMMs of a step, never a GEMM itself.
AROUND = (
    "transformer_engine::(anonymous namespace)::zero_amax_kernel(float*, float const*)",
    "void transformer_engine::(anonymous namespace)::amax_kernel<16, true, __nv_bfloat16>(__nv_bfloat16 const*)",
    "cast_transpose_optimized_kernel(__nv_bfloat16 const*, float const*, __nv_fp8_e4m3*, __nv_fp8_e4m3*, float const*)",
    "void transformer_engine::(anonymous namespace)::block_scaled_1d_cast_transpose_kernel<true, float>()",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, true, float>()",
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>>()",
    "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16>>()",
)

# Recipe and situation -> forward, dgrad, wgrad.
STEPS: dict[str, tuple[tuple[str, str, str], tuple[str, str]]] = {
    "current HYBRID bf16": (
        (
            "nvjet_sm90_qqtst_64x8_128x16_2x4_h_bz_TNT",
            "nvjet_sm90_qrtst_64x8_128x16_2x4_h_bz_algo2_TNT",
            "nvjet_sm90_qrtst_128x128_128x6_2x1_v_bz_coopA_algo2_TNT",
        ),
        (E4M3, E5M2),
    ),
    "current E4M3 bf16": (
        (
            "nvjet_sm90_qqtst_64x8_128x16_2x4_h_bz_TNT",
            "nvjet_sm90_qqtst_64x8_128x16_2x4_h_bz_algo2_TNT",
            "nvjet_sm90_qqtst_64x8_128x16_2x4_h_bz_algo2_TNT",
        ),
        (E4M3, E4M3),
    ),
    "current HYBRID fp16": (
        (
            "nvjet_sm90_qqhsh_64x8_128x16_2x4_h_bz_TNT",
            "nvjet_sm90_qrhsh_64x8_128x16_2x4_h_bz_algo2_TNT",
            "nvjet_sm90_qrhsh_64x8_128x16_2x4_h_bz_algo2_TNT",
        ),
        (E4M3, E5M2),
    ),
    "delayed HYBRID fp32, K = 8192": (
        (
            "nvjet_sm90_qqsss_64x32_128x16_2x4_h_bz_splitK_TNT",
            "nvjet_sm90_qrsss_128x64_128x8_1x2_h_bz_algo2_TNT",
            "nvjet_sm90_qrsss_8x64_128x16_4x2_h_bz_algo2_TNN",
        ),
        (E4M3, E5M2),
    ),
    "block E4M3 bf16": (
        (
            "nvjet_sm90_qqtst_128x128_128x6_1x1_h_bz_coopA_algo2_Ablk128_Bvec128_splitK_TNN",
            "nvjet_sm90_qqtst_128x128_128x6_2x1_v_bz_coopA_algo2_Ablk128_Bvec128_TNN",
            "nvjet_sm90_qqtst_64x8_128x16_2x4_h_bz_algo2_Avec128_Bvec128_TNT",
        ),
        (E4M3, E4M3),
    ),
    "block HYBRID bf16": (
        (
            "nvjet_sm90_qqtst_128x128_128x6_1x1_h_bz_coopA_algo2_Ablk128_Bvec128_TNN",
            "nvjet_sm90_qrtst_128x128_128x6_2x1_v_bz_coopA_algo2_Ablk128_Bvec128_TNN",
            "nvjet_sm90_qrtst_64x8_128x16_2x4_h_bz_algo2_Avec128_Bvec128_TNT",
        ),
        (E4M3, E5M2),
    ),
}

HIGH_PRECISION = {
    "nvjet_sm90_tst_64x8_64x16_2x4_h_bz_bias_TNT": "bfloat16",
    "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN": "bfloat16",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4": "float32",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(cutlass_80_simt_sgemm_64x64::Params)": "float32",
}

OPS = (
    ProfiledOp("fp8te::linear", (), -1),
    ProfiledOp("cuLaunchKernelEx", (), 0),
    ProfiledOp("Activity Buffer Request", (), -1),
    ProfiledOp("_DelayedLinearBackward", (), -1),
    ProfiledOp("cuLaunchKernelEx", (), 3),
)


def kernels(*names: str, op: int = -1) -> list[ProfiledKernel]:
    return [ProfiledKernel(name, op) for name in names]


def kinds(*names: str) -> Counter[str]:
    return Counter(record.kind for record in classify(kernels(*names), OPS))


@pytest.mark.parametrize("step", STEPS)
def test_every_gemm_of_a_recorded_step_is_known_with_its_operands(step: str) -> None:
    (forward, dgrad, wgrad), backward_dtypes = STEPS[step]
    names = [AROUND[0], AROUND[1], AROUND[2], forward, *AROUND[3:], dgrad, AROUND[2], wgrad]
    records = classify(kernels(*names), OPS)
    assert [(r.kind, r.a_dtype, r.b_dtype) for r in records] == [
        ("fp8_native", E4M3, E4M3),
        ("fp8_native", *backward_dtypes),
        ("fp8_native", *backward_dtypes),
    ]


@pytest.mark.parametrize("name", HIGH_PRECISION)
def test_high_precision_gemms_are_never_fp8(name: str) -> None:
    (record,) = classify(kernels(name), OPS)
    dtype = HIGH_PRECISION[name]
    assert (record.kind, record.a_dtype, record.b_dtype) == ("high_precision", dtype, dtype)


@pytest.mark.parametrize("name", AROUND)
def test_what_runs_around_a_gemm_is_none(name: str) -> None:
    assert classify(kernels(name), OPS) == []


def test_a_step_whose_backward_fell_back_to_bfloat16_is_one_fp8_gemm() -> None:
    names = (STEPS["current HYBRID bf16"][0][0], *list(HIGH_PRECISION)[:2])
    assert kinds(*names) == {"fp8_native": 1, "high_precision": 2}


@pytest.mark.parametrize(
    "name",
    [
        "nvjet_sm90_zztst_64x8_128x16_2x4_h_bz_TNT",  # letters that nobody has seen
        "nvjet_sm100_ootst_128x256_128x4_2x1_v_bz_TNT",
        "nvjet_sm90_qttst_64x8_128x16_2x4_h_bz_TNT",  # FP8 times bfloat16: no FP8 GEMM
        "nvjet_sm90_tqtst_64x8_128x16_2x4_h_bz_TNT",
        "nvjet_sm90_qqts_64x8_128x16_2x4_h_bz_TNT",  # four letters, six letters
        "nvjet_sm90_qqtsts_64x8_128x16_2x4_h_bz_TNT",
        "nvjet_qq",
        "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<float_e4m3_t, float_e4m3_t>>()",
        "void gemmSN_NN_kernel<float, 128, 2, 4, 8, 4, 4, false>()",
        "triton_tem_fused_mm_0 matmul",
    ],
)
def test_what_may_be_a_gemm_and_is_not_known_is_unknown(name: str) -> None:
    assert kinds(name) == {"unknown": 1}


def test_the_operator_that_asked_for_a_kernel_is_named() -> None:
    forward, dgrad, _ = STEPS["current HYBRID bf16"][0]
    asked = [(forward, 1), (dgrad, 4), (forward, 2), (forward, -1), (forward, 99)]
    records = classify([ProfiledKernel(name, op) for name, op in asked], OPS)
    assert [r.kernel.partition(" in ")[2] for r in records] == [
        "fp8te::linear",
        "_DelayedLinearBackward",
        "no operator",
        "no operator",
        "no operator",
    ]


def test_operands_are_in_cublaslts_order() -> None:
    assert operands_of("nvjet_sm90_qrtst_64x8_128x16") == (E4M3, E5M2)
    assert operands_of("nvjet_sm90_rqtst_64x8_128x16") == (E5M2, E4M3)
    assert operands_of("memcpy") == ("", "")
