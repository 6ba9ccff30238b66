# make demo    sets everything up and runs the main job
# make test    sets everything up and runs every test: those in memory, real processes, Spark
# make test-long  the longest tests, of kinds that `make test` has too: more seeds, longer campaigns
# make quick   the quick tests alone, about two minutes; make clients: those of the client alone
# make pythons the quick tests of the client on each other Python from 3.11 on that this machine has
# make fresh   both commands above in minimal Debian roots (12, 13 and sid), as a new user; as root, with debootstrap: an hour
# make interop the same stories with the real Apache RocketMQ (from Maven Central)
# make interop-short  the main ones of those, with 5.3.3: eight minutes
# make soak    fault schedules for ten minutes, Spark drivers killed over and over, then the Spark tests on the other PySpark
#              versions (450 MB each)
# make mutants rules of brokers and clients taken away, one at a time: after how many fault schedules each is missed; ten minutes
# make faults  brokers as processes that are killed, stopped, torn, parted and cut from power, for ten minutes; as root with
#              networks and file systems of their own
# make fuzz    everything that a peer's bytes reach, fuzzed for ten minutes, led by coverage
# make dist    wheel, source archive and SBOM in dist/, built from the last commit and tried (docs/releasing.md)
# make bench   the benchmarks, one JSON object a line
# make pictures draws those of docs/pictures: the diagrams, and what a live pair shows; with graphviz, chromium and prometheus
#              of Debian; five minutes
# make docs    the manual as a site, in build/docs
# make check   format, lint, types
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PYTEST := $(RUN) -m pytest -q
# In a process for each core; where tests of a file share a cluster or a Spark session, the file stays in one process.
PYTEST_APART := $(PYTEST) -n auto
FILES_APART := --dist loadfile
PYTEST_FILES_APART := $(PYTEST_APART) $(FILES_APART)
# In the order of the folders: otherwise files of one long test come last, and are left to one process at the end.
IN_ORDER := $(FILES_APART) --no-loadscope-reorder
# Processes and sockets make tests wait; three times as many at once as there are cores keep those busy.
PYTEST_REAL := $(PYTEST) -n $(shell expr 3 \* $$(nproc)) $(IN_ORDER)
INSTALLED := $(VENV)/.installed
# Some environments set this. Then each of the hundreds of processes of `make test` would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-long quick clients slow memory real spark pythons fresh interop interop-short soak mutants faults fuzz dist bench pictures docs check format clean

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "rocketrio needs Python 3.11 or later; '$(PYTHON)' is older. Name another: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $@

demo: $(INSTALLED)
	@$(RUN) examples/demo

.NOTPARALLEL:

test: check memory real spark

MEMORY := not real and not spark and not interop and not long
QUICK := not slow and $(MEMORY)
quick: $(INSTALLED)
	$(PYTEST_APART) -m '$(QUICK)'

clients: $(INSTALLED)
	$(PYTEST_APART) -m '$(QUICK)' tests/client

# Quick and slow tests in one run, as `make test` has them: they are collected once, and no core waits in between.
memory: $(INSTALLED)
	$(PYTEST_APART) -m '$(MEMORY)'

slow: $(INSTALLED)
	$(PYTEST_APART) -m 'slow and $(MEMORY)'

real: $(INSTALLED)
	$(PYTEST_REAL) -m 'real and not spark and not interop and not long'

spark: $(INSTALLED)
	$(PYTEST_APART) $(IN_ORDER) -m 'spark and not interop and not long'

test-long: $(INSTALLED)
	$(PYTEST_REAL) -m 'long and not spark and not interop'
	$(PYTEST_APART) $(IN_ORDER) -m 'spark and long and not interop'

pythons: $(INSTALLED)
	$(RUN) -m tests.pythons

fresh:
	$(PYTHON) -m tests.fresh

interop: $(INSTALLED)
	$(PYTEST_FILES_APART) -m interop tests/interop

# Left out of them are brokers that come back, dead letters and retries, and broadcasting: each waits for half a minute.
SLOWEST := restart or comes_back or lost or deletion or hands_back or broadcast
SHORT := java_on_our_broker our_client_on_apache security_our_client security_java_on_ours security_others_on_ours security_denied security_tls other_clients_on_our_broker mqadmin replication
interop-short: $(INSTALLED)
	$(PYTEST_FILES_APART) -m interop -k 'not 4.9.7 and not ($(SLOWEST))' $(SHORT:%=tests/interop/test_%.py)

soak: $(INSTALLED)
	$(RUN) -m tests.cluster.soak
	$(RUN) -m tests.spark.exactly_once --lives 20
	$(RUN) -m tests.spark.versions

mutants: $(INSTALLED)
	$(RUN) -m tests.cluster.mutants

faults: $(INSTALLED)
	$(RUN) -m tests.faults.campaign --minutes 10

fuzz: $(INSTALLED)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -e '.[fuzz]' -c constraints.txt
	$(RUN) -m tests.fuzz

dist: $(INSTALLED)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -e '.[dist]' -c constraints.txt
	@$(RUN) -m tests.distribution

bench: $(INSTALLED)
	$(RUN) benchmarks/run.py

pictures: $(INSTALLED)
	@for program in dot chromium prometheus; do command -v $$program > /dev/null || \
		{ echo "$$program is missing: apt-get install graphviz chromium prometheus" >&2; exit 1; }; done
	$(RUN) -m docs.pictures.diagrams
	$(RUN) -m docs.pictures.live

docs: $(INSTALLED)
	$(RUN) docs/site/build.py

check: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy --num-workers auto

format: $(INSTALLED)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build/docs build/docs-source build/docs-cache
