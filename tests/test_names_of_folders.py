"""Names of folders that look like something else: numbers, hidden folders, columns of tables."""

from __future__ import annotations

import re

import pytest

from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.load import load_config
from ppo_bench.sweeps.expand import expand


@pytest.mark.parametrize("name", ["1.10", "2024_10", "007", "true", "1e3", "a", "läufe/ü"])
def test_a_name_in_quotes_stays_as_it_is(name: str) -> None:
    config = load_config([f"name='{name}'", f"outputs='{name}'"])
    assert (config.root.name, config.root.outputs) == (name, name)
    jobs = expand([f"name='{name}',b"])
    assert [load_config(job).root.name for job in jobs] == [name, "b"]


def test_a_hidden_name_is_refused_since_no_command_would_find_its_runs() -> None:
    for name in (".trial", "a/.b"):
        with pytest.raises(
            ConfigError, match=re.escape(f"name={name}: must be a relative path without '..' or hidden")
        ):
            load_config([f"name={name}"])
