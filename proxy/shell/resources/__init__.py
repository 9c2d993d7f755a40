"""Resources of the process: threads, memory, its log."""

from proxy.shell.resources.bounded import BoundedMap
from proxy.shell.resources.logs import configure_logging, logger, write_lines_for
from proxy.shell.resources.threads import (
    NotWanted,
    Threads,
    TooSlow,
    UnderWay,
    in_thread,
    recurring,
    while_wanted,
)
from proxy.shell.resources.waiting import Kept, Waiting, WaitingRoom
from proxy.shell.resources.whole_files import UNFINISHED, SharedFile, create_file, remove_unfinished, replace_file
from proxy.shell.resources.workload import Share, Workload, forget_what_is_gone, give_memory_back, tune_interpreter

__all__ = [
    "UNFINISHED",
    "BoundedMap",
    "Kept",
    "NotWanted",
    "Share",
    "SharedFile",
    "Threads",
    "TooSlow",
    "UnderWay",
    "Waiting",
    "WaitingRoom",
    "Workload",
    "configure_logging",
    "create_file",
    "forget_what_is_gone",
    "give_memory_back",
    "in_thread",
    "logger",
    "recurring",
    "remove_unfinished",
    "replace_file",
    "tune_interpreter",
    "while_wanted",
    "write_lines_for",
]
