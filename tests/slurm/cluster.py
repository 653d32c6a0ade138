"""A real SLURM of this machine alone: munged, slurmctld and a slurmd for each node, on loopback, up in a second."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

# Preemption requeues, as on most clusters, after a warning signal. A requeued job may start after cred_expire seconds.
# A busy machine may answer late: a node that SLURM takes for lost gets no job until it is asked again, a third of
# SlurmdTimeout later.
CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/d.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
ReturnToService=2
JobRequeue=1
KillWait=5
MessageTimeout=60
BatchStartTimeout=60
SlurmdTimeout=120
MinJobAge=600
FirstJobId={first_job}
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
NodeName=alone NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=4096 State=UNKNOWN
NodeName=left NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=4096 State=UNKNOWN
NodeName=right NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[3]} CPUs=2 RealMemory=4096 State=UNKNOWN
PartitionName=debug Nodes=alone Default=YES MaxTime=INFINITE State=UP PriorityTier=10 GraceTime=30
PartitionName=cpu Nodes=alone Default=NO MaxTime=INFINITE State=UP PriorityTier=10 GraceTime=30
PartitionName=high Nodes=alone Default=NO MaxTime=INFINITE State=UP PriorityTier=100 PreemptMode=OFF
PartitionName=pair Nodes=left,right Default=NO MaxTime=INFINITE State=UP PriorityTier=10 GraceTime=30
PartitionName=pair_high Nodes=left,right Default=NO MaxTime=INFINITE State=UP PriorityTier=100 PreemptMode=OFF
"""
NODES = ("alone", "left", "right")


def slurm(*command: str) -> str:
    """What a command of SLURM prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


HANG_SECONDS = 180
"""A wait that is this long is a hang. When a job that was queued again starts is the controller's affair."""


def wait_for(what: str, condition: Callable[[], object], pause: float = 0.2) -> None:
    """Return as soon as `condition`, asked every `pause` seconds, holds; fail if it hangs."""
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"after {HANG_SECONDS} s: not {what}"
        time.sleep(pause)


def wait_for_an_empty_queue() -> None:
    """Return when no job is queued or running."""
    try:
        wait_for("an empty queue", lambda: not slurm("squeue", "-h"))
    except AssertionError as error:
        error.add_note(slurm("scontrol", "show", "job"))
        for log in sorted(Path(os.environ["SLURM_CONF"]).parent.glob("slurm*.log")):
            error.add_note(f"{log.name}:\n{log.read_text()[-4000:]}")
        raise


class Node:
    """A node of the cluster."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._folder = name, folder
        self._daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start its slurmd."""
        self._daemon = _start(self._folder, ["slurmd", "-D", "-N", self.name, "-f", str(self._folder / "slurm.conf")])

    def stop(self) -> None:
        """End its slurmd; jobs that run are left alone."""
        if self._daemon:
            self._daemon.terminate()
            self._daemon.wait(timeout=HANG_SECONDS)

    def processes(self) -> list[int]:
        """Ids of the processes of jobs on this node, those of SLURM that started them among them."""
        found = set()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"\0SLURMD_NODENAME={self.name}\0".encode() not in b"\0" + path.read_bytes():
                    continue
                status = (path.parent / "status").read_text()
            except OSError:  # it has ended meanwhile
                continue
            parent = int(status.split("PPid:")[1].split()[0])
            found.add(int(path.parent.name))
            if _is_step_daemon(parent):
                found.add(parent)
        return sorted(found - {os.getpid()})

    def die(self) -> None:
        """Kill everything on it at once, as a power failure would."""
        assert self._daemon
        self._daemon.kill()
        self._daemon.wait(timeout=HANG_SECONDS)
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def _is_step_daemon(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"slurmstepd")
    except OSError:
        return False


@contextmanager
def cluster() -> Iterator[dict[str, Node]]:
    """The cluster's nodes, idle; SLURM_CONF names it to every command of SLURM started meanwhile."""
    host = socket.gethostname().split(".")[0]
    user = slurm("id", "-un")
    # Not under pytest's folder, which is closed to others: munged wants a socket that everyone can reach.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for name in ("ctld", *(f"d.{node}" for node in NODES)):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # slurmd looks for cgroups that nothing uses
        configuration = folder / "slurm.conf"
        first_job = int(time.time()) % 60_000_000  # ids never come twice, as in one long life
        configuration.write_text(
            CONFIGURATION.format(
                host=host, user=user, folder=folder, ports=_free_ports(1 + len(NODES)), first_job=first_job
            )
        )
        before = os.environ.get("SLURM_CONF")
        os.environ["SLURM_CONF"] = str(configuration)
        stack.callback(lambda: os.environ.pop("SLURM_CONF") if before is None else None)
        munge = [f"--{name.replace('_', '-')}={folder}/{file}" for name, file in MUNGE_FILES.items()]
        _daemon(stack, folder, ["munged", "--foreground", *munge])
        wait_for("munged up", (folder / "munge.socket").exists)
        _daemon(stack, folder, ["slurmctld", "-D", "-i", "-f", str(configuration)])
        nodes = {name: Node(name, folder) for name in NODES}
        for node in nodes.values():
            node.start()
            stack.callback(node.stop)
        wait_for("idle nodes", lambda: _node_states() == {"idle"})
        stack.callback(_empty)
        yield nodes


MUNGE_FILES = {
    "key_file": "munge.key",
    "socket": "munge.socket",
    "pid_file": "munged.pid",
    "log_file": "munged.log",
    "seed_file": "munged.seed",
}


def _daemon(stack: ExitStack, folder: Path, command: list[str]) -> None:
    """Start a daemon in the foreground; it ends with the stack."""
    process = _start(folder, command)

    def end() -> None:
        process.terminate()
        process.wait(timeout=HANG_SECONDS)

    stack.callback(end)


def _start(folder: Path, command: list[str]) -> subprocess.Popen[bytes]:
    # Debian keeps daemons out of a plain user's PATH.
    path = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"
    program = shutil.which(command[0], path=path)
    assert program, f"{command[0]} is not installed: tests/slurm/install.sh says how"
    with open(folder / f"{command[0]}.out", "a") as output:
        return subprocess.Popen([program, *command[1:]], stdout=output, stderr=output, start_new_session=True)


def _node_states() -> set[str]:
    process = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, check=False)
    return set(process.stdout.split())


def _empty() -> None:
    """Cancel what is left, so that no job outlives the cluster."""
    for job in slurm("squeue", "-h", "-o", "%A").split():
        subprocess.run(["scancel", job], check=False)
    wait_for_an_empty_queue()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
