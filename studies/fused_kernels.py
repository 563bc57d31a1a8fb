"""Cycles of fused kernels, `gemm_packed` to `attention_merge`, of a compiler other than Poplar [ipu21-kernels].

Poplar runs these steps as separate kernels, so no layer of the cost model uses these formulas. Each formula follows how
the codelet divides its rows among six worker threads; its constants are cycles of a worker's loops and of the launch by
the supervisor. The measured cycles are in `tests/vectors/ipu_kernel_cycles_measured.json`.
"""

from __future__ import annotations

from autoauto.targets.ipu.kernels import BINARY_LAUNCH_CYCLES, WORKERS, gelu_row

_PANEL = 16  # rows or channels that lie together


def gemm_interleaved(rows: int, inputs: int, outputs: int) -> int:
    """Cycles of an fp16 matrix product, operands in panels in interleaved memory; within 2 % of six measured cases.

    >>> gemm_interleaved(244, 64, 64)
    18470
    """
    return 294 + -(-inputs // _PANEL) * -(-outputs // _PANEL) * (4 * rows + 160)


def gemm_packed(rows: int, inputs: int, outputs: int, interleaved: bool = False) -> int:
    """Cycles of an fp16 matrix product that packs its rows in panels of 16; within 1 % of four measured cases.

    Rows are divided evenly among the workers. A worker stops at every edge of a panel, which takes 184 cycles. The
    first panel of inputs has no partial sums to load, which saves 189 cycles.

    >>> gemm_packed(48, 240, 64), gemm_packed(48, 240, 64, interleaved=True)
    (34986, 33066)
    """
    slowest_cycles = max(_packed_worker(worker, rows) for worker in range(WORKERS))
    panel = slowest_cycles + (182 if interleaved else 214)  # 32 more cycles to load weights in 64 bits at a time
    return 342 + -(-outputs // _PANEL) * (-(-inputs // _PANEL) * panel - 189)


def _packed_worker(worker: int, rows: int) -> int:
    each, more = divmod(rows, WORKERS)
    first, share = worker * each + min(worker, more), each + (worker < more)
    return 24 * share + 184 * -(-(first % _PANEL + share) // _PANEL) if share else 0


def add(n_elements: int, width: int) -> int:
    """Cycles to add a row of `width` to `n_elements` in fp16, or as many elements; exact on two measured cases.

    A row that is added repeatedly starts again every time, which takes 234 cycles.

    >>> add(1728, 1728), add(3456, 1152)
    (1800, 3564)
    """
    if n_elements % 4 or width % 4 or n_elements % width:
        return BINARY_LAUNCH_CYCLES - 54 + -(-n_elements // 12) * 54
    n_rows = n_elements // width
    return BINARY_LAUNCH_CYCLES + n_rows * -(-width // 24) * 18 + (n_rows - 1) * 234


def bias_gelu(rows: int, width: int) -> int:
    """Cycles of bias and gelu in fp16, row by row; within 1 % of nine measured cases.

    >>> bias_gelu(3, 2208), bias_gelu(1, 94)
    (25746, 1464)
    """
    if width % 4 == 0:
        return 222 + rows * (228 + -(-width // 24) * 90)
    return 222 + rows * (gelu_row(width, 426, block=516, pair=138, tail=36) - 186)


def layernorm_add(rows: int, width: int) -> int:
    """Cycles of residual addition and layer normalisation in fp16; exact on four measured cases.

    >>> layernorm_add(1, 1152)
    8376
    """
    if width < 96 or width % 8:
        return 132 + rows * (1290 + -(-width // 12) * 144)
    statistics = 24 + -(-width // 48) * 30 + -(-width // 24) * 42
    return 132 + rows * (1452 + statistics + -(-width // 24) * 84)


def attention_merge(rows: int, values: int, initial: bool = False, final: bool = False) -> int:
    """Cycles to add one block of keys to the running sum of attention; exact on three measured cases.

    >>> attention_merge(8, 72, initial=True), attention_merge(8, 72), attention_merge(8, 72, final=True)
    (2430, 3378, 3438)
    """
    loop = 3 * (values // _PANEL) + -(-values // 2) * (4 if initial else 6) + (values >= _PANEL)
    last = (3 if initial else 5) if final else 0
    return 222 + -(-rows // WORKERS) * WORKERS * ((27 if initial else 34) + loop + last)
