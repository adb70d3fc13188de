"""Which tests a worker of pytest-xdist runs one after another."""

from __future__ import annotations

from xdist.scheduler import LoadGroupScheduling

ANY_WORKER = "any"  # the group of slow tests, which any worker runs one by one


def scope_of(test: str) -> str:
    """The tests with the same scope run in one worker, one after another.

    These are the tests of a group, or those of a file without a group. A worker then makes the fixtures of a file once,
    and need not ask for each of thousands of short tests. The name of a test ends with its group.

    >>> scope_of("tests/sql/test_emit.py::test_a_form[a@b]"), scope_of("tests/cli/test_main.py::test_a_plan@spark")
    ('tests/sql/test_emit.py', 'spark')
    >>> scope_of("tests/differential/test_pure.py::test_every_answer[1]@any")
    'tests/differential/test_pure.py::test_every_answer[1]@any'
    """
    if test.rfind("@") <= test.rfind("]"):
        return test.split("::")[0]
    group = test.rsplit("@", 1)[1]
    return test if group == ANY_WORKER else group


class FileScheduling(LoadGroupScheduling):
    """Sends the tests of a scope to a worker, the largest scopes first; slow tests come last and fill the gaps."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
