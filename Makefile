# make setup | run | lock | setup-procgen | memory-gym | gymnax | test | test-slurm | test-slow | lint | docs | gpu-proof | soak; everything lives in .venv, which `setup` makes and the others need.
# `test-slow` opens pages in Chromium and plays Procgen, which needs root once, to install Chromium and Qt 5.
PYTHON ?= python3
BIN := .venv/bin
SEED ?= 1
DEVICE ?= cuda

# Python keeps what it has compiled of torch, jax and the others, or each process takes 4 s longer to import them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup lock setup-procgen memory-gym gymnax run test test-slurm test-slow gpu-proof soak lint docs demo-resume

setup: .venv/.complete

.venv/.empty: pyproject.toml constraints.txt launch/uv.sh
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "Python 3.11 to 3.13 is needed: make setup PYTHON=python3.12")'
	$(PYTHON) -m venv --clear .venv
	touch $@

# What the default run needs, and no more.
.venv/.run: .venv/.empty
	launch/uv.sh pip install --quiet -c constraints.txt -e '.[torch]'
	touch $@

.venv/.complete: .venv/.empty
	launch/uv.sh pip install --quiet -c constraints.txt -e '.[all,dev]'
	touch .venv/.run $@

# constraints.txt anew: versions for Python 3.11 to 3.13, which stay as they are as far as pyproject.toml allows.
lock: .venv/.empty
	UV_FIND_LINKS= UV_INDEX= launch/uv.sh pip compile --quiet --universal --python-version 3.11 --all-extras \
		--no-annotate --custom-compile-command 'make lock' --output-file constraints.txt pyproject.toml

# Qt 5 of the system, which EnvPool's Procgen needs; needs root once, to install it.
setup-procgen: setup
	launch/install_qt.sh

# Memory Gym asks for gymnasium 0.29 and pygame 2.4, and works with the newer ones that are here.
memory-gym: setup
	launch/uv.sh pip install --quiet --no-deps memory-gym==1.0.2

# gymnax asks for gymnasium before 1.4, and works with this one.
gymnax: setup
	launch/uv.sh pip install --quiet --no-deps gymnax==1.0.1 craftax==1.6.1 seaborn==0.13.2 six==1.17.0

run: .venv/.run
	$(BIN)/python -m ppo_bench seed=$(SEED)

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Threads that wait leave the CPU to others. Each process that TorchInductor compiles with would import torch.
PYTEST := OMP_WAIT_POLICY=passive TORCHINDUCTOR_COMPILE_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile --durations=10

# Lint takes what the tests leave of two cores; if it fails, what it says comes after theirs.
test: setup memory-gym gymnax
	nice $(MAKE) lint > .venv/lint.txt 2>&1 & lint=$$!; \
	$(PYTEST) -m "not slow"; tests=$$?; \
	wait $$lint || { cat .venv/lint.txt; exit 1; }; exit $$tests

# Long trainings and compilations, kills, browsers, documents, and what depends on the machine.
# Files start in order of their names, since else the documentation's longest page starts last, alone.
test-slow: setup-procgen memory-gym gymnax
	tests/browser/install.sh
	command -v faketime > /dev/null || launch/apt_install.sh "make test-slow makes the clock jump" faketime
	$(PYTEST) --no-loadscope-reorder -m slow

# The tests of tests/slurm, which mostly wait. Each of two processes starts a SLURM of its own; needs root once, to
# install it.
test-slurm: setup
	tests/slurm/install.sh
	$(BIN)/python -m pytest -q -n 2 --dist loadfile tests/slurm

# What only a GPU can show, in parts of nine minutes that go on where they were: make gpu-proof [PART=same JOBS=8].
# DEVICE=cpu rehearses it. A check that has passed is in outputs/gpu-proof and is not made again. PART=race, programs of
# others beside ours, wants PUREJAXRL, LEANRL and CLEANRL, their folders, and PEER_PYTHON.
gpu-proof: setup
	$(BIN)/python -m tests.gpu_proof --device $(DEVICE) $(if $(PART),--part $(PART)) $(if $(JOBS),--jobs $(JOBS))

# The whole campaign of kills, damaged files and configurations at random: docs/reliability.md. About an hour.
soak: setup
	SOAK=1 $(BIN)/python -m pytest -q -n 2 --dist load tests/test_faults.py

# The site of the documentation, in site/. Nothing of it is loaded from elsewhere.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# Trains CartPole twice, once with a kill -9 in the middle, and compares all that was learnt: half a minute.
demo-resume: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" launch/demo_resume.sh
