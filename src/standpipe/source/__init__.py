"""The source place: the records of a data set, and where their bytes are stored."""

from standpipe.source.annotations.coco import Coco
from standpipe.source.annotations.voc import PascalVoc
from standpipe.source.annotations.yolo import YoloLabels
from standpipe.source.build_index import IndexReport, build_index
from standpipe.source.check_index import IndexCheckReport, verify_index
from standpipe.source.concat import Concat, JoinedDataset, OpenConcat, OpenDatasets, open_concat, turns_photos
from standpipe.source.files.filelist import FileList
from standpipe.source.files.folder import ImageFolder
from standpipe.source.index.store import is_settled
from standpipe.source.python.indexed import MapSource
from standpipe.source.python.stream import IterableSource, Stream
from standpipe.source.records.arrays import Arrays
from standpipe.source.records.fixed import FixedRecords
from standpipe.source.records.idx import IdxFiles
from standpipe.source.shards.mds import MDS
from standpipe.source.shards.tar import TarShards
from standpipe.source.shards.tfrecords import TFRecords
from standpipe.source.tables.arrow import Arrow
from standpipe.source.tables.hugging_face import HuggingFace
