"""junit.xml.

The file follows the common JUnit XML format as documented at https://github.com/testmoapp/junitxml: ``testsuites`` >
``testsuite`` > ``testcase`` with ``properties``, then one of ``failure``, ``error``, ``skipped``. It is what pytest
calls ``junit_family=xunit1``; the stricter junit-10.xsd of Jenkins's xUnit plug-in has no properties on a test case.

* ``failure``: the cell was judged and is not as expected (fail, xpass, flaky).
* ``error``: it could not be judged (error, timeout, crash, oom, infra).
* ``skipped``: skip, xfail, and every red that a quarantine keeps from gating, so that CI gates as the exit code does.

A second suite, ``NAME.run``, holds what no cell can: whether the required evidence was reached, whether the run came to
its end, whether its audit found nothing, and whether it was no worse than its baseline. Without it a file of green
cells would hide a red run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape, quoteattr

from harness.report.groups import headline
from harness.report.marks import cell_seconds
from harness.report.view import View
from harness.types import CellResult, Verdict

MAX_MESSAGE = 1000
MAX_TEXT = 20_000  # characters of one cell's stack; results.jsonl has it whole

# What XML 1.0 can't hold at all, not even as a reference (https://www.w3.org/TR/xml/#charsets).
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_FAILURES = (Verdict.FAIL, Verdict.XPASS, Verdict.FLAKY)
_HEAD = """<?xml version="1.0" encoding="utf-8"?>
<!-- Common JUnit XML format, https://github.com/testmoapp/junitxml, with properties on test cases (pytest: xunit1). -->
"""


@dataclass(frozen=True)
class _Case:
    """One testcase; ``outcome`` is failure, error, skipped or empty for a pass."""

    classname: str
    name: str
    seconds: float
    outcome: str = ""
    kind: str = ""
    message: str = ""
    text: str = ""
    properties: Mapping[str, str] | None = None


def junit_chunks(view: View) -> Iterator[str]:
    """The file as pieces of text."""
    name = view.name
    suites = [(name, [_cell_case(name, result) for result in view.results]), (f"{name}.run", _run_cases(view))]
    everything = [case for _, cases in suites for case in cases]
    yield _HEAD
    yield f"<testsuites {_counts(everything)} name={_attribute(name)}>\n"
    for suite, cases in suites:
        stamp = f" timestamp={_attribute(view.run.started)}" if view.run.started else ""
        yield f"<testsuite name={_attribute(suite)} {_counts(cases)}{stamp}>\n"
        for case in cases:
            yield _case_text(case)
        yield "</testsuite>\n"
    yield "</testsuites>\n"


def _cell_case(name: str, result: CellResult) -> _Case:
    seed = str(result.axes.get("seed", ""))
    properties = {"evidence": result.evidence.value, "arch": result.arch, "seed": seed, "verdict": result.verdict.value}
    if result.signature:
        properties["signature"] = result.signature
    outcome, kind = _outcome(result)
    text = "\n".join([*map(str, result.findings), *result.notes, result.repro])
    if result.detail:
        text += "\n\n" + result.detail
    return _Case(
        classname=f"{name}.{result.case}",
        name=result.id,
        seconds=cell_seconds(result),
        outcome=outcome,
        kind=kind,
        message=headline(result) if outcome else "",
        text=text if outcome in ("failure", "error") else "",
        properties=properties,
    )


def _outcome(result: CellResult) -> tuple[str, str]:
    verdict = result.verdict
    if verdict is Verdict.PASS:
        return "", ""
    if verdict.is_red and not result.gates:
        return "skipped", f"quarantined.{verdict.value}"
    if verdict.is_red:
        check = result.findings[0].check if result.findings else verdict.value
        return ("failure" if verdict in _FAILURES else "error"), check
    return "skipped", verdict.value


def _run_cases(view: View) -> list[_Case]:
    run, unmet = view.run, view.unmet
    required = _Case(f"{view.name}.run", f"require {run.require}", 0.0)
    if unmet:
        required = replace(required, outcome="failure", kind="require", message=unmet[0], text="\n".join(unmet))
    complete = _Case(f"{view.name}.run", "complete", 0.0)
    if run.exit_code not in (0, 1):
        kind = f"exit code {run.exit_code}"
        complete = replace(complete, outcome="error", kind=kind, message=view.meaning)
    audit = _Case(f"{view.name}.run", "audit", 0.0)
    if view.audited:
        audit = replace(audit, outcome="error", kind="audit", message=view.audited[0], text="\n".join(view.audited))
    return [required, complete, audit, *_baseline_case(view)]


def _baseline_case(view: View) -> Iterator[_Case]:
    report = view.run.baseline
    if report is not None:
        case = _Case(f"{view.name}.run", f"baseline {report.file}", 0.0)
        worse = view.worse
        if worse:
            case = replace(case, outcome="failure", kind="baseline", message=worse[0], text="\n".join(worse))
        yield case


def _counts(cases: Sequence[_Case]) -> str:
    numbers = {
        "tests": len(cases),
        "failures": sum(case.outcome == "failure" for case in cases),
        "errors": sum(case.outcome == "error" for case in cases),
        "skipped": sum(case.outcome == "skipped" for case in cases),
    }
    seconds = sum(case.seconds for case in cases)
    return " ".join(f'{key}="{value}"' for key, value in numbers.items()) + f' time="{seconds:.3f}"'


def _case_text(case: _Case) -> str:
    head = f'<testcase classname={_attribute(case.classname)} name={_attribute(case.name)} time="{case.seconds:.3f}">'
    properties = "".join(
        f"<property name={_attribute(key)} value={_attribute(value)}/>"
        for key, value in (case.properties or {}).items()
    )
    body = f"<properties>{properties}</properties>" if properties else ""
    if case.outcome:
        message = _attribute(case.message[:MAX_MESSAGE])
        text = escape(_xml(case.text[:MAX_TEXT]))
        body += f"<{case.outcome} type={_attribute(case.kind)} message={message}>{text}</{case.outcome}>"
    return f"{head}{body}</testcase>\n"


def _attribute(value: str) -> str:
    return quoteattr(_xml(value))


def _xml(text: str) -> str:
    """``text`` with a visible escape in place of every character that XML can't hold."""
    return _NOT_XML.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode("ascii"), text)
