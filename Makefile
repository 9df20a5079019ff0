.PHONY: help demo test check bench docs clean

help: ## list these commands
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

demo: ## set up, make photos, read them, draw a sheet; TORCH=1 installs PyTorch and compares
	@scripts/setup $(if $(TORCH),torch)
	@scripts/demo

test: ## set up, check, run all tests but the longest
	@scripts/setup test
	@scripts/test

check: ## format, lint, types, layers, stubs: seconds
	@scripts/setup test
	@scripts/check

bench: ## every benchmark, each beside a peer
	@scripts/setup test
	@scripts/bench

docs: ## docs/_build/index.html
	@scripts/setup docs
	@.venv/bin/python -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo "docs/_build/index.html"

clean: ## remove what was built, all but .venv
	@rm -rf build dist demo docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis .venv/.standpipe/package
	@find src tests benchmarks docs scripts -name __pycache__ -prune -exec rm -rf {} +
