"""Find what is wrong with a program's DataLoaders, and what to do about it.

``child/``     the probe, which runs inside the examined script and writes down facts
``facts``      types of these facts; ``gather`` reads its lines, ``running`` runs the script
``judge_*``    facts in, findings out: pure functions
``script``     all of it together
``data``       a folder of images, and measurements of it
``stuck``      a running process: ``processes`` reads /proc, ``scene`` contains what was read
"""

from standpipe.doctor.data import Data, Speeds, data_facts, judge_data, look_at
from standpipe.doctor.facts import Host
from standpipe.doctor.finding import Finding, Severity
from standpipe.doctor.running import ScriptLimits, host_facts
from standpipe.doctor.script import ScriptReport, examine_script
from standpipe.doctor.stuck import ProcessReport, examine_process
