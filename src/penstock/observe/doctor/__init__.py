"""What is wrong with somebody's DataLoaders, and what to do about it.

``child/``     the probe, which runs inside the examined script and writes down facts
``facts``      what it saw, in types; ``gather`` reads its lines, ``running`` runs the script
``judge_*``    facts in, findings out: pure functions
``script``     all of it together
"""

from penstock.observe.doctor.finding import Finding, Severity
from penstock.observe.doctor.running import Limits
from penstock.observe.doctor.script import ScriptReport, examine_script

__all__ = ["Finding", "Limits", "ScriptReport", "Severity", "examine_script"]
