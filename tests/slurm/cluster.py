"""A real SLURM of this machine alone: munged, slurmctld and slurmd on loopback, up in a second, ended by process id."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Preemption requeues, as on most clusters, after a warning signal. A requeued job may start after cred_expire seconds.
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
SlurmdPort={ports[1]}
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/d
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
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
MinJobAge=600
FirstJobId={first_job}
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=4096 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=10 GraceTime=30
PartitionName=high Nodes=ALL Default=NO MaxTime=INFINITE State=UP PriorityTier=100 PreemptMode=OFF
"""


def slurm(*command: str) -> str:
    """What a command of SLURM prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


HANG_SECONDS = 180
"""A wait that is this long is a hang. When a job that was queued again starts is the controller's affair."""


def wait_for(what: str, condition: Callable[[], object], seconds: float = HANG_SECONDS) -> None:
    """Return as soon as `condition` holds; fail if it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds} s: not {what}"
        time.sleep(0.2)


@contextmanager
def cluster() -> Iterator[None]:
    """The cluster, idle; SLURM_CONF names it to every command of SLURM started meanwhile."""
    host = socket.gethostname().split(".")[0]
    user = slurm("id", "-un")
    # Not under pytest's folder, which is closed to others: munged wants a socket that everyone can reach.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for name in ("ctld", "d"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # slurmd looks for cgroups that nothing uses
        configuration = folder / "slurm.conf"
        first_job = int(time.time()) % 60_000_000  # ids never come twice, as in one long life
        configuration.write_text(
            CONFIGURATION.format(host=host, user=user, folder=folder, ports=_free_ports(2), first_job=first_job)
        )
        before = os.environ.get("SLURM_CONF")
        os.environ["SLURM_CONF"] = str(configuration)
        stack.callback(lambda: os.environ.pop("SLURM_CONF") if before is None else None)
        munge = [f"--{name.replace('_', '-')}={folder}/{file}" for name, file in MUNGE_FILES.items()]
        _daemon(stack, folder, ["munged", "--foreground", *munge])
        wait_for("munged up", (folder / "munge.socket").exists)
        _daemon(stack, folder, ["slurmctld", "-D", "-i", "-f", str(configuration)])
        _daemon(stack, folder, ["slurmd", "-D", "-f", str(configuration)])
        wait_for("an idle node", lambda: _node_state() == "idle")
        stack.callback(_empty)
        yield


MUNGE_FILES = {
    "key_file": "munge.key",
    "socket": "munge.socket",
    "pid_file": "munged.pid",
    "log_file": "munged.log",
    "seed_file": "munged.seed",
}


def _daemon(stack: ExitStack, folder: Path, command: list[str]) -> None:
    """Start a daemon in the foreground; it ends with the stack."""
    # Debian keeps daemons out of a plain user's PATH.
    path = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"
    program = shutil.which(command[0], path=path)
    assert program, f"{command[0]} is not installed: tests/slurm/install.sh says how"
    with open(folder / f"{command[0]}.out", "w") as output:
        process = subprocess.Popen([program, *command[1:]], stdout=output, stderr=output, start_new_session=True)

    def end() -> None:
        process.terminate()
        process.wait(timeout=30)

    stack.callback(end)


def _node_state() -> str:
    process = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, check=False)
    return process.stdout.split("\n")[0]


def _empty() -> None:
    """Cancel what is left, so that no job outlives the cluster."""
    for job in slurm("squeue", "-h", "-o", "%A").split():
        subprocess.run(["scancel", job], check=False)
    wait_for("an empty queue", lambda: not slurm("squeue", "-h"))


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
