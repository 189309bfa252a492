# `make demo` and `make test` need python3 (3.10 to 3.13) and nothing else; both keep to this folder.
PYTHON ?= python3
DEMO ?= demo
RUN := .venv/bin
TEST := .venv-test/bin

# Installs into an environment. With UV, the path of uv, that takes a tenth of the time.
install = $(if $(UV),$(UV) pip install -q --python $(1),$(1)/bin/python -m pip install -q)
# With bytecode: without it each process of the tests compiles all of them, and each command that they run the package.
export PYTHONDONTWRITEBYTECODE =

.PHONY: test-python test-lowest demo test test-benchmark lint benchmark docs references pictures clean image test-aarch64

demo: .venv/ready
	$(RUN)/edgefirst-ros demo -o $(DEMO) --seconds 3

test: .venv-test/ready
	$(TEST)/python -m compileall -q edgefirst_ros
	POLARS_MAX_THREADS=1 $(TEST)/python -m pytest -n 4 --dist worksteal  # the processes share the cores

test-benchmark: .venv-test/ready
	$(TEST)/python -m pytest test_benchmark -n 2

# Sensors, alignment, conversions, captures, tables, the reader, exports and settings on another Python, and with the
# lowest version of every dependency.
SHORT_TESTS := $(wildcard test/sensors/test_*.py) test/sync test/test_config.py test/pipeline/test_conversion.py \
  test/pipeline/test_capture_states.py test/pipeline/test_capture_session.py test/dataset/test_reader.py \
  test/dataset/tables/test_forms.py test/dataset/tables/test_rowlog.py test/export/labels/test_coco.py \
  test/export/labels/test_yolo.py test/export/test_roverd.py
SHORT := .venv-$(notdir $(PYTHON))

test-python: $(SHORT)/ready
	$(SHORT)/bin/python -m pytest -n 2 $(SHORT_TESTS)
	@mkdir -p .cache
	$(SHORT)/bin/python test/dataset_hashes.py > .cache/hashes-$(notdir $(PYTHON))

test-lowest: .venv-lowest/ready
	.venv-lowest/bin/python -m pytest -n 2 $(SHORT_TESTS)
	@mkdir -p .cache
	.venv-lowest/bin/python test/dataset_hashes.py > .cache/hashes-lowest

lint: .venv-test/ready
	$(TEST)/ruff check .
	$(TEST)/ruff format --check .
	$(TEST)/mypy
	$(TEST)/python test/words.py

# The site: open site/index.html. It makes no request to other hosts.
docs: references
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict -q

references: .venv-docs/ready
	.venv-docs/bin/python docs/tools/references.py

pictures: .venv-test/ready
	$(TEST)/python docs/tools/pictures.py
	$(TEST)/python docs/tools/picture.py

benchmark: .venv-benchmark/ready
	.venv-benchmark/bin/python benchmark/run.py --keep

# Both are optional: they need root, mmdebstrap and buildah, or qemu-user-static, and the network.
image: .venv/ready
	PYTHON=$(RUN)/python deploy/image.sh

test-aarch64: .venv/ready
	PYTHON=$(RUN)/python deploy/aarch64.sh $(RECORDINGS)

.venv/ready: setup.py
	$(PYTHON) -m venv .venv
	$(call install,.venv) -e ".[report]"
	touch $@

.venv-docs/ready: setup.py
	$(PYTHON) -m venv .venv-docs
	$(call install,.venv-docs) -e ".[docs]"
	touch $@

.venv-benchmark/ready: setup.py test/readers.txt
	$(PYTHON) -m venv .venv-benchmark
	$(call install,.venv-benchmark) -e ".[benchmark]"
	$(call install,.venv-benchmark) --no-deps -r test/readers.txt
	touch $@

$(SHORT)/ready: setup.py
	$(PYTHON) -m venv $(SHORT)
	$(call install,$(SHORT)) -e ".[test-short]"
	touch $@

.venv-lowest/ready: setup.py test/lowest.py
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python test/lowest.py > .venv-lowest/lowest.txt
	$(call install,.venv-lowest) -c .venv-lowest/lowest.txt -e ".[test-short]"
	touch $@

# What l5kit needs to read; it asks for torch and for old versions of everything.
L5KIT := "PTable>=0.9" "protobuf<=3.20.3" "zarr>=2.18,<3" "numcodecs<0.16" opencv-python-headless pymap3d pyyaml \
  tqdm transforms3d

# Exit code 2: there is no compiler or no ROS 2 for this platform; the tests that need it are skipped and say so.
.venv-test/ready: setup.py test/readers.txt test/ros-kilted.txt $(wildcard test/interfaces/*/msg/*.msg)
	$(PYTHON) -m venv .venv-test
	$(call install,.venv-test) -e ".[test]"
	$(call install,.venv-test) --no-deps -r test/readers.txt
	$(PYTHON) -m venv .venv-test/nuscenes && $(call install,.venv-test/nuscenes) --only-binary :all: nuscenes-devkit==1.2.0 \
	  || { rm -r .venv-test/nuscenes; echo "no nuScenes reader for $(PYTHON): its tests are skipped"; }
	$(PYTHON) -m venv .venv-test/l5kit && $(call install,.venv-test/l5kit) $(L5KIT) \
	  && $(call install,.venv-test/l5kit) --no-deps l5kit==1.5.0 \
	  || { rm -r .venv-test/l5kit; echo "no L5Kit reader for $(PYTHON): its tests are skipped"; }
	$(TEST)/python test/ros_environment.py .venv-test || [ $$? -eq 2 ]
	touch $@

clean:
	rm -rf .venv .venv-test .venv-docs .venv-benchmark .venv-python3.* .venv-lowest .cache/benchmark demo build install log *.egg-info
