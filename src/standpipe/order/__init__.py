"""The order place: which record comes when, and which rank takes it at which step."""

from standpipe.order._arguments import MAX_POSITIONS, MAX_ROWS, whole_number
from standpipe.order.blocks import BlockShuffled
from standpipe.order.budget import Budget, BudgetOrder
from standpipe.order.chosen import Chosen, Filter, OfColumns, SplitByColumn
from standpipe.order.columns import Columns
from standpipe.order.excluded import exclusion
from standpipe.order.given import Given
from standpipe.order.groups import AspectGroups, GroupBy
from standpipe.order.labels import check_column
from standpipe.order.marks import Marks, numbers_of
from standpipe.order.mixture import Mixed
from standpipe.order.sampled import Balance, Balanced, Sampling, Weighted, Weights
from standpipe.order.selection import Chain, Repeated, Select, Selected, Selection, Skip, Split, Take
from standpipe.order.sequential import Sequential
from standpipe.order.shuffle import Shuffled
from standpipe.order.steps import AnyOrder, Cursor, Drawn, RankStep, Steps
from standpipe.order.streamed import Streamed
from standpipe.order.substitute import substitute
from standpipe.order.table import Table, grouped_by, sorted_by
