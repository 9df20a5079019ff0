"""The order place: which record comes when, and which rank takes it at which step."""

from penstock.order._arguments import MAX_POSITIONS, MAX_ROWS, whole_number
from penstock.order.blocks import BlockShuffled
from penstock.order.budget import Batches, Budget
from penstock.order.chosen import Chosen, Filter, OfColumns, SplitByColumn
from penstock.order.columns import Columns
from penstock.order.excluded import exclusion
from penstock.order.given import Given
from penstock.order.labels import check_column
from penstock.order.marks import Marks, numbers_of
from penstock.order.mixture import Mixed
from penstock.order.sampled import Balance, Balanced, Sampling, Weighted, Weights
from penstock.order.selection import Chain, Repeated, Select, Selected, Selection, Skip, Split, Take
from penstock.order.sequential import Sequential
from penstock.order.shuffle import Shuffled
from penstock.order.steps import Cursor, Drawn, Step, Steps
from penstock.order.streamed import Streamed
from penstock.order.substitute import substitute
from penstock.order.table import Table, grouped_by, sorted_by

__all__ = [
    "MAX_POSITIONS",
    "MAX_ROWS",
    "Balance",
    "Balanced",
    "Batches",
    "BlockShuffled",
    "Budget",
    "Chain",
    "Chosen",
    "Columns",
    "Cursor",
    "Drawn",
    "Filter",
    "Given",
    "Marks",
    "Mixed",
    "OfColumns",
    "Repeated",
    "Sampling",
    "Select",
    "Selected",
    "Selection",
    "Sequential",
    "Shuffled",
    "Skip",
    "Split",
    "SplitByColumn",
    "Step",
    "Steps",
    "Streamed",
    "Table",
    "Take",
    "Weighted",
    "Weights",
    "check_column",
    "exclusion",
    "grouped_by",
    "numbers_of",
    "sorted_by",
    "substitute",
    "whole_number",
]
