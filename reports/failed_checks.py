"""What failed, above the verdict: a line for each check, unless pytest was asked for more with -v, -r or --tb."""

from __future__ import annotations

import pytest

MOST_OF_A_TEST = 8
MOST_OF_A_LINE = 300
STATED = ("Failed: ", "AssertionError: ")


def only_lines(config: pytest.Config) -> bool:
    """Whether lines are enough; then pytest's own list of what failed is left out. To be asked before its reporter is made."""
    option, words = config.option, config.invocation_params.args
    if not config.pluginmanager.has_plugin("terminal"):
        return False
    by_name = any(word.startswith(("-r", "--report-chars", "--tb")) for word in words)
    if by_name or option.verbose > 0 or option.reportchars != "fE" or option.tbstyle != "auto":
        return False
    option.reportchars = "N"
    return True


def first_line(report: pytest.TestReport) -> str:
    """What a failed check says, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = next(iter(str(crash.message if crash else report.longrepr).splitlines()), "")[:MOST_OF_A_LINE]
    return next((text.removeprefix(begin) for begin in STATED if text.startswith(begin)), text)


def says_it_all(report: pytest.TestReport) -> bool:
    """Whether the line does: a check that failed, or a SUT that could not be run; of all else the traceback counts."""
    if "selftest" in report.nodeid:
        return False
    crash = getattr(report.longrepr, "reprcrash", None)
    return hasattr(report, "relay_error") or crash is not None and crash.message.startswith((*STATED, "assert "))


def broke_itself(report: pytest.TestReport) -> bool:
    """Whether a check ended in an error of its own or of what is around it, which says nothing of the SUT."""
    return getattr(report.longrepr, "reprcrash", None) is not None and not says_it_all(report)


def write_failed_checks(terminalreporter: pytest.TerminalReporter, config: pytest.Config, said_below: set[str]) -> None:
    """said_below: checks that the verdict names, with their lines."""
    reports = [*terminalreporter.getreports("error"), *terminalreporter.getreports("failed")]
    stated = [report for report in reports if says_it_all(report)]
    others = [report for report in reports if not says_it_all(report)]
    if others:
        terminalreporter.write_sep("=", "failures")
    for report in others:
        terminalreporter.write_sep("_", report.head_line or report.nodeid, red=True, bold=True)
        report.toterminal(config.get_terminal_writer())
    tests: dict[str, list[pytest.TestReport]] = {}
    for report in stated:
        if report.nodeid not in said_below:
            tests.setdefault(report.nodeid.partition("[")[0], []).append(report)
    if tests:
        terminalreporter.write_sep("=", "failed checks, in a line each (-v and --tb show more)")
    for name, alike in tests.items():
        for report in alike[:MOST_OF_A_TEST]:
            terminalreporter.write_line(f"{report.nodeid}: {first_line(report)}")
        if len(alike) > MOST_OF_A_TEST:
            terminalreporter.write_line(f"{name}: {len(alike) - MOST_OF_A_TEST} more")
