from __future__ import annotations

from harness.run.order import expensive_first
from tests.support.cells import cell


def test_inductor_first_and_the_plans_order_otherwise() -> None:
    cells = [cell(0), cell(1, backend="inductor"), cell(2, backend="eager"), cell(3, backend="inductor")]
    assert expensive_first(cells) == tuple(cells[index].id for index in (1, 3, 0, 2))
