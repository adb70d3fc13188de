"""EXPLAIN: how the queries of an engine are computed together, as text, as JSON and as a drawing."""

from transom.plan.explain.collect import Explained, gather, held_by_selection, work_done
from transom.plan.explain.mermaid import mermaid
from transom.plan.explain.records import Explanation, WorkDone
from transom.plan.explain.stores import keeps_text
from transom.plan.explain.text import plan_text, query_text, work_text

__all__ = [
    "Explained",
    "Explanation",
    "WorkDone",
    "gather",
    "held_by_selection",
    "keeps_text",
    "mermaid",
    "plan_text",
    "query_text",
    "work_done",
    "work_text",
]
