# make builds everything into build/; `make help` lists the targets.
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
SHELL := /bin/bash
MAKEFLAGS += --no-builtin-rules -j$(shell nproc)

GO ?= go
CC ?= gcc
CXX ?= g++
B ?= build
# go-nvml names functions that its own headers call deprecated.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
WARN := -Wall -Wextra -Wshadow -Werror
CFLAGS ?= -O2 -g
CXXFLAGS ?= -O2 -g
ALL_CFLAGS = -std=gnu11 $(CFLAGS) $(WARN) -Wmissing-prototypes -fPIC -fvisibility=hidden -I. -pthread
ALL_CXXFLAGS = -std=gnu++17 $(CXXFLAGS) $(WARN) -fPIC -fvisibility=hidden -I. -pthread
LDLIBS = -pthread -lrt -lm -ldl
SAN_OPT = -O1 -g
SAN = $(SAN_OPT) -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
DEPS = -MMD -MP -MF $@.d

# Sources by place: tests end in _test, benchmarks in _bench, fuzzers in _fuzz; the rest is the library.
NOTLIB := %_test.c %_bench.c %_fuzz.c %_test.cc %_bench.cc %_fuzz.cc
softnic_src := $(filter-out $(NOTLIB),$(wildcard minigda/softnic/*.c minigda/mlx5/*.c))
minigda_src := $(filter-out $(NOTLIB),$(wildcard minigda/*.cc))
miniproxy_src := $(filter-out $(NOTLIB),$(wildcard miniproxy/*.cc))
backends := minigda miniproxy rawstore nvshmem ncclgin deepep replay
plugins := $(foreach b,$(backends),$(if $(wildcard backends/$(b)/$(b).cu),$(B)/lib$(b).so))
minigda_objs := $(minigda_src:%.cc=$(B)/obj/%.o) $(softnic_src:%.c=$(B)/obj/%.o)
no_gpu := backends/abi/gpu_none
miniproxy_objs := $(miniproxy_src:%.cc=$(B)/obj/%.o) $(minigda_objs)
replay_objs := $(minigda_objs)
rawstore_objs := $(B)/obj/backends/rawstore/memory_host.o
deepep_objs := $(B)/obj/backends/deepep/python.o $(B)/obj/backends/deepep/source.o
$(B)/obj/backends/deepep/source.o: $(wildcard backends/deepep/*.py)

test_src := $(wildcard minigda/*_test.cc minigda/*/*_test.c miniproxy/*_test.cc workloads/*/*_test.cc backends/*/*_test.cc)
bench_src := $(wildcard minigda/*_bench.cc minigda/*/*_bench.c miniproxy/*_bench.cc)
tests := $(addprefix $(B)/test/,$(basename $(test_src)))
benches := $(addprefix $(B)/bench/,$(basename $(bench_src)))

.PHONY: all gic plugins with-cuda cuda-deps cuda no-nvshmem no-ncclgin cuda-check \
	cuda-checked dist run test test-c test-go bench fuzz lint fmt clean help FORCE
all: gic plugins with-cuda ## build build/gic and the backends' build/lib*.so; with a CUDA toolkit build/cuda/ too
gic: $(B)/gic
plugins: $(plugins)

$(B)/gic: FORCE
	@mkdir -p $(B)
	$(GO) build -o $@ ./harness/cmd/gic

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(DEPS) -c $< -o $@
$(B)/obj/%.o: %.cc
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) $(DEPS) -c $< -o $@
# The device code of a plugin; without a CUDA toolkit its device threads are threads of this machine.
$(B)/obj/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) $(DEPS) -x c++ -c $< -o $@
define plugin_rule
$(B)/lib$(1).so: $(B)/obj/backends/$(1)/$(1).cu.o $$($(1)_objs) $(B)/obj/$(no_gpu).o | backends/abi/exports.map
	$$(CXX) -shared -Wl,-z,defs -Wl,--version-script=backends/abi/exports.map -o $$@ $$^ $$(LDLIBS)
endef
$(foreach b,$(backends),$(eval $(call plugin_rule,$(b))))

# C and C++ tests are plain mains, built with everything they use under ASan and UBSan.
$(B)/san/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(SAN) $(DEPS) -c $< -o $@
# C++ here is mostly the device code's templates, many times over: they take longer to optimise than to run, but for these.
$(B)/san/%.o: SAN_OPT = $(if $(filter %.cc,$<),-O0 -g1,-O1 -g)
$(B)/san/warp/%.o $(B)/san/minigda/gda_count_test.o: SAN_OPT = -O1 -g
$(B)/san/%.o: %.cc
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) $(SAN) $(DEPS) -c $< -o $@
san_lib := $(miniproxy_src:%.cc=$(B)/san/%.o) $(minigda_src:%.cc=$(B)/san/%.o) $(softnic_src:%.c=$(B)/san/%.o) \
	$(B)/san/$(no_gpu).o
# NCCL's plugin for softnic, without its CUDA half, which its tests replace.
ncclgin_net_src := $(filter-out %_cuda.cc %_test.cc,$(wildcard backends/ncclgin/net*.cc backends/ncclgin/gin*.cc))
$(foreach t,gdaki proxy group,$(B)/test/backends/ncclgin/gin_$(t)_test): $(ncclgin_net_src:%.cc=$(B)/san/%.o)
$(B)/san/backends/ncclgin/table_test.o: ALL_CXXFLAGS += $(if $(ncclgin_there),$(NCCL_INCLUDES))
$(tests): $(B)/test/%: $(B)/san/%.o $(san_lib)
	@mkdir -p $(@D)
	$(CXX) $(SAN) -o $@ $^ $(LDLIBS)
# softnic's tests in virtual time on the GPU engine's device code, whose lanes are coroutines here.
warp_tests := $(foreach t,wqe queue error dc pace demand live steady burst softnic_fuzz,$(B)/test/minigda/softnic/warp_$(t)_test)
$(B)/san/warp/%.o: minigda/softnic/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(SAN) -DSOFTNIC_TEST_GPU $(DEPS) -c $< -o $@
$(B)/san/warp/%.o: minigda/softnic/%.cc
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) $(SAN) $(DEPS) -c $< -o $@
$(warp_tests): $(B)/test/minigda/softnic/warp_%: $(B)/san/warp/%.o $(B)/san/warp/test_warp.o $(softnic_src:%.c=$(B)/san/%.o)
	@mkdir -p $(@D)
	$(CXX) $(SAN) -o $@ $^ $(LDLIBS)
$(benches): $(B)/bench/%: $(B)/obj/%.o $(miniproxy_objs) $(B)/obj/$(no_gpu).o
	@mkdir -p $(@D)
	$(CXX) -o $@ $^ $(LDLIBS)

run: all ## build, then run the main job: both floors side by side on this machine
	$(B)/gic run

test: ## all tests; needs no GPU and no NIC
	+@$(MAKE) test-c
	+@$(MAKE) test-go
test-c: $(tests) $(warp_tests)
	@printf '%s\n' $(tests) $(warp_tests) | xargs -P $$(nproc) -I{} bash -c \
		'out=$$(timeout 300 {} 2>&1); rc=$$?; printf "%s\n" "== {}" $${out:+"$$out"}; [ $$rc = 0 ] || { echo "FAIL {} ($$rc)"; exit 255; }'
# Code of others that computes alone, for a figure or a file: watched for races it takes 20 times as long. None of it may use
# sync.Map or an atomic that orders watched code: the linker keeps one copy of a generic function, and one that is not
# watched hides that order (encoding/gob and net/rpc do: races are reported where there are none).
unwatched := image/... compress/... golang.org/x/image/... github.com/golang/freetype/... git.sr.ht/~sbinet/... \
	gonum.org/v1/plot/... github.com/HdrHistogram/... github.com/santhosh-tekuri/jsonschema/... \
	github.com/aclements/go-moremath/...
# vet is lint's.
go_test = GORACE=atexit_sleep_ms=0 GOGC=400 $(GO) test -race $(unwatched:%=-gcflags=%=-race=false) -vet=off -timeout 15m
# Packages whose ranks poll: beside each other they take turns at finding nothing, and each takes several times as long.
polling := gic/backends/backendtest gic/harness/attribution gic/harness/cli gic/harness/run
test-go: gic plugins
	rc=0; $(go_test) $(filter-out $(polling),$(shell $(GO) list ./...)) || rc=1; $(go_test) -p 1 $(polling) || rc=1; exit $$rc

bench: all $(benches) ## speed, as ratios measured side by side in one run
	@for b in $(benches); do echo "== $$b"; timeout 300 $$b || exit 1; done
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...

# Random queues, indices and keys against the NIC, coverage-guided; the seeded form of it is in `make test`.
FUZZ_SECONDS ?= 60
fuzz: ## fuzz the software NIC with libFuzzer (clang) for FUZZ_SECONDS
	@mkdir -p $(B)/fuzz/corpus
	clang -std=gnu11 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I. -pthread \
		$(softnic_src) minigda/softnic/softnic_fuzz.c -o $(B)/fuzz/softnic_fuzz -lrt
	$(B)/fuzz/softnic_fuzz -max_total_time=$(FUZZ_SECONDS) -max_len=4096 $(B)/fuzz/corpus

# A CUDA toolkit: one found on the machine, or the pinned wheels in .deps. Compiling needs no GPU.
NVCC ?= $(or $(shell command -v nvcc 2>/dev/null),$(wildcard .deps/cuda/nvidia/cu13/bin/nvcc))
CUDA_HOME ?= $(patsubst %/bin/,%,$(dir $(realpath $(NVCC))))
CUDA_ARCHS ?= 90
# Kernels compressed: a tenth of the size, and build/dist has to be carried.
compress := $(if $(CHECK),,$(if $(NVCC),$(shell $(NVCC) --help 2>/dev/null | grep -o -m1 -e '--compress-mode' | sed 's/$$/=size/')))
# CHECK=1: kernels compiled and linked without optimisation, the floors' in a choice that has every source, workload and
# handle. It sees the same warnings in a quarter of the time, and is no build to measure or to run.
NVCC_OPT := $(if $(CHECK),-Ofc max -DGIC_UNBOUNDED,-O3)
NVCCFLAGS = -std=c++17 $(NVCC_OPT) -I. $(compress) $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
	-Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror,-fPIC,-fvisibility=hidden
CUDA_LIBS = $(addprefix -L,$(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/lib)) -l:libcudart_static.a
ifneq ($(NVCC),)
with-cuda: cuda
else
with-cuda:
	@echo "no CUDA toolkit: without CUDA device threads (make cuda-deps installs one; or set NVCC)"
endif
cuda-deps: .deps/cuda.stamp ## install the pinned CUDA toolkit into .deps
.deps/cuda.stamp: .cuda-requirements.txt
	python3 -m pip install -q --no-deps --upgrade --root-user-action ignore --target .deps/cuda -r $<
	touch $@
define need_nvcc
@[ -n "$(NVCC)" ] || { echo "no nvcc: run make cuda-deps, or set NVCC"; exit 1; }
@mkdir -p $(@D)
endef

# A floor's plugin with CUDA serves device=host too. Everything but the kernels is compiled by the host compiler; a
# kernel is one workload on one type of handle, a few to an object (GIC_PART), so that make -j spreads them.
floors := minigda miniproxy replay rawstore
minigda_kernels := $(foreach p,1 2 3 4 5 11,op-$(p)) $(foreach p,1 2 5 8 11,stream-$(p)) caller-1 caller-2 caller-7 caller-10 \
	$(foreach w,alltoall moe conform,$(w)-1 $(w)-2 $(w)-6) conform-9 conform-11
replay_kernels := op-1 op-2 stream-1 stream-2 alltoall-1 moe-1
ifneq ($(CHECK),) # each workload once, and each type of handle once
minigda_kernels := $(foreach p,2 3 4 5,op-$(p)) stream-8 stream-11 caller-7 caller-10 alltoall-1 moe-6 conform-9
replay_kernels := op-1 stream-2 alltoall-1 moe-1
endif
miniproxy_kernels := op-1 op-2 caller-7 stream-1 stream-2 alltoall-1 moe-1 moe-2 conform-1 conform-2
ifneq ($(CHECK),)
miniproxy_kernels := op-1 caller-7 stream-2 alltoall-1 moe-2 conform-1
endif
rawstore_kernels := $(foreach w,op stream alltoall moe conform,$(w)-1)
cuda_kernels = $($(1)_kernels:%=$(B)/cuda/$(1)_%.o)
cuda_plugins := $(floors:%=$(B)/cuda/lib%.so)
cuda: $(cuda_plugins) ## build build/cuda/lib*.so, whose device threads can be CUDA threads (CUDA_ARCHS, 90)
cuda-check: $(foreach f,$(floors),$(call cuda_kernels,$(f))) ## compile every kernel, warnings as errors
# What a check has compiled must not become a plugin that somebody measures.
cuda-check: $(if $(CHECK),cuda-checked)
cuda-checked:
	@mkdir -p $(B)/cuda && touch $(B)/cuda/checked
ifneq ($(and $(NVCC),$(wildcard $(B)/cuda/checked),$(filter all cuda dist run bench,$(or $(MAKECMDGOALS),all))),)
$(error $(B)/cuda holds what CHECK=1 compiled, not optimised: remove that folder first)
endif
# What of a kernel's object the host compiler makes is the same for most: a check compiles it once, and for caller's.
device_only = $(if $(CHECK),$(if $(filter $(firstword $($(1)_kernels)) caller-%,$(2)),,-cubin))
define cuda_kernel_rule
$(B)/cuda/$(1)_$(2).o: backends/$(1)/$(1)_cuda.cu
	$$(need_nvcc)
	$$(NVCC) $$(NVCCFLAGS) $(call device_only,$(1),$(2)) -DGIC_WORKLOAD=$(firstword $(subst -, ,$(2))) \
		-DGIC_PART=$(lastword $(subst -, ,$(2))) -MMD -MF $$@.d $(if $(call device_only,$(1),$(2)),,-c) $$< -o $$@
endef
define cuda_plugin_rule
$(foreach k,$($(1)_kernels),$(eval $(call cuda_kernel_rule,$(1),$(k))))
$(B)/cuda/lib$(1).so: $(B)/cuda/$(1).o $(B)/cuda/gpu.o $$($(1)_objs) $(call cuda_kernels,$(1)) | backends/abi/exports.map
	$$(CXX) -shared -Wl,-z,defs -Wl,--version-script=backends/abi/exports.map -o $$@ $$^ $$(CUDA_LIBS) $$(LDLIBS)
$(B)/cuda/$(1).o: backends/$(1)/$(1).cu
	@mkdir -p $$(@D)
	$$(CXX) $$(ALL_CXXFLAGS) -DGIC_CUDA_PLUGIN $$(DEPS) -x c++ -c $$< -o $$@
endef
$(foreach f,$(floors),$(eval $(call cuda_plugin_rule,$(f))))
cuda-check: $(B)/cuda/rawstore_memory.o
$(B)/cuda/librawstore.so: $(B)/cuda/rawstore_memory.o
$(B)/cuda/rawstore_memory.o: backends/rawstore/memory_cuda.cc
$(B)/cuda/gpu.o: backends/abi/gpu_cuda.cc
$(B)/cuda/gpu.o $(B)/cuda/rawstore_memory.o:
	$(need_nvcc)
	$(CXX) $(ALL_CXXFLAGS) -isystem $(CUDA_HOME)/include $(DEPS) -c $< -o $@

# softnic's GPU engine, and what only a machine with a GPU can run: softnic's tests once more on that engine, the test of
# the engine while it runs, and its bench.
gpu_engine := $(B)/cuda/softnic/gpu_engine.o
softnic_gpu_tests := $(foreach t,wqe queue error dc pace,$(B)/cuda/test/softnic_$(t)_test)
softnic_gpu_programs := $(softnic_gpu_tests) $(B)/cuda/test/softnic_gpu_engine_test $(B)/cuda/test/softnic_gpu_engine_bench
$(filter-out %/librawstore.so,$(cuda_plugins)): $(gpu_engine)
cuda: $(softnic_gpu_programs)
cuda-check: $(softnic_gpu_programs)
$(B)/cuda/softnic/%.o: minigda/softnic/%.cu
	$(need_nvcc)
	$(NVCC) $(NVCCFLAGS) -MMD -MF $@.d -c $< -o $@
$(B)/cuda/softnic/%.o: minigda/softnic/%.cc
	$(need_nvcc)
	$(CXX) $(ALL_CXXFLAGS) -isystem $(CUDA_HOME)/include $(DEPS) -c $< -o $@
$(B)/cuda/softnic/%.o: minigda/softnic/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -DSOFTNIC_TEST_GPU $(DEPS) -c $< -o $@
$(softnic_gpu_tests): $(B)/cuda/softnic/test_gpu.o
$(softnic_gpu_programs): $(B)/cuda/test/softnic_%: $(B)/cuda/softnic/%.o $(gpu_engine) $(softnic_src:%.c=$(B)/obj/%.o)
	@mkdir -p $(@D)
	$(CXX) -o $@ $^ $(CUDA_LIBS) $(LDLIBS)

# Benches of the floors' device code alone, beside bare loops of the same stores.
floor_gpu_benches := $(B)/cuda/test/gda_bench $(B)/cuda/test/proxy_bench
cuda cuda-check: $(floor_gpu_benches)
$(B)/cuda/gda_bench.o: minigda/gda_bench.cu
$(B)/cuda/proxy_bench.o: miniproxy/proxy_bench.cu
$(B)/cuda/gda_bench.o $(B)/cuda/proxy_bench.o:
	$(need_nvcc)
	$(NVCC) $(NVCCFLAGS) -MMD -MF $@.d -c $< -o $@
$(floor_gpu_benches): $(B)/cuda/test/%: $(B)/cuda/%.o
	@mkdir -p $(@D)
	$(CXX) -o $@ $< $(CUDA_LIBS) $(LDLIBS)

# The nvshmem plugin (libnvshmem.so) is linked against nothing of NVIDIA's; beside it lie the half that holds NVSHMEM's
# device archive and needs its host library, and a transport for that library. The wheel is in .deps, or on the machine.
NVSHMEM_HOME ?= $(firstword $(wildcard .deps/cuda/nvidia/nvshmem) \
	$(shell python3 -c 'import nvidia.nvshmem as n; print(n.__path__[0])' 2>/dev/null))
nvshmem_kernels := $(foreach w,op stream conform,$(w)-1 $(w)-2 $(w)-3) $(foreach w,alltoall moe protocol,$(w)-1) \
	caller-1 caller-2
nvshmem_cuda := $(nvshmem_kernels:%=$(B)/cuda/nvshmem_%.o) $(B)/cuda/nvshmem_created.o
nvshmem_transports := $(foreach t,ibgda ibrc,$(B)/cuda/nvshmem_transport_$(t).so.3)
nvshmem_parts := $(B)/cuda/libnvshmem.so $(B)/cuda/gic_nvshmem.so $(nvshmem_transports)
NVSHMEM_INCLUDES = -isystem $(NVSHMEM_HOME)/include -isystem $(CUDA_HOME)/include
# What there is to build it against: without, `make cuda` leaves it out and says so; cuda-check insists.
nvshmem_there := $(and $(NVSHMEM_HOME),$(wildcard /usr/include/infiniband/mlx5dv.h))
cuda: $(if $(nvshmem_there),$(nvshmem_parts),no-nvshmem)
no-nvshmem:
	@echo "without the nvshmem backend: it needs $(or $(if $(NVSHMEM_HOME),,NVSHMEM (make cuda-deps)),infiniband/mlx5dv.h (libibverbs-dev))"
cuda-check: $(nvshmem_parts)
define need_nvshmem
$(need_nvcc)
@[ -n "$(NVSHMEM_HOME)" ] || { echo "no NVSHMEM: run make cuda-deps, or set NVSHMEM_HOME"; exit 1; }
endef
$(B)/cuda/libnvshmem.so: $(B)/cuda/nvshmem.o | backends/abi/exports.map
	$(CXX) -shared -Wl,-z,defs -Wl,--version-script=backends/abi/exports.map -o $@ $^ $(LDLIBS)
$(B)/cuda/nvshmem.o: backends/nvshmem/nvshmem.cu
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) -DGIC_CUDA_PLUGIN $(DEPS) -x c++ -c $< -o $@
$(B)/cuda/nvshmem_%.o: backends/nvshmem/%.cc
	$(need_nvshmem)
	$(CXX) $(ALL_CXXFLAGS) -DGIC_CUDA_PLUGIN $(NVSHMEM_INCLUDES) $(DEPS) -c $< -o $@
$(foreach t,transport ibrc,$(B)/san/backends/nvshmem/$(t)_test.o): ALL_CXXFLAGS += $(if $(NVSHMEM_HOME),$(NVSHMEM_INCLUDES))
define nvshmem_kernel_rule
$(B)/cuda/nvshmem_$(1).o: backends/nvshmem/nvshmem_cuda.cu
	$$(need_nvshmem)
	$$(NVCC) $$(NVCCFLAGS) -rdc=true -isystem $$(NVSHMEM_HOME)/include -DGIC_WORKLOAD=$(firstword $(subst -, ,$(1))) \
		-DGIC_PART=$(lastword $(subst -, ,$(1))) -MMD -MF $$@.d -c $$< -o $$@
endef
$(foreach k,$(nvshmem_kernels),$(eval $(call nvshmem_kernel_rule,$(k))))
$(B)/cuda/nvshmem_created.o: backends/nvshmem/created.cu
	$(need_nvshmem)
	$(NVCC) $(NVCCFLAGS) -rdc=true -isystem $(NVSHMEM_HOME)/include -MMD -MF $@.d -c $< -o $@
$(B)/cuda/nvshmem_linked.o: $(nvshmem_cuda)
	$(NVCC) $(compress) $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) -Xcompiler -fPIC -dlink $^ \
		-L$(NVSHMEM_HOME)/lib -lnvshmem_device -o $@
$(B)/cuda/gic_nvshmem.so: $(B)/cuda/nvshmem_session.o $(nvshmem_cuda) $(B)/cuda/nvshmem_linked.o $(B)/cuda/gpu.o | backends/nvshmem/session.map
	$(CXX) -shared -Wl,-z,defs -Wl,--version-script=backends/nvshmem/session.map -o $@ $^ -L$(NVSHMEM_HOME)/lib \
		-l:libnvshmem_device.a -l:libnvshmem_host.so.3 $(CUDA_LIBS) $(LDLIBS)
$(B)/cuda/nvshmem_transport_ibgda.so.3: $(B)/cuda/nvshmem_ibgda.o $(B)/cuda/nvshmem_queues.o
$(B)/cuda/nvshmem_transport_ibrc.so.3: $(B)/cuda/nvshmem_ibrc.o
$(nvshmem_transports): $(B)/cuda/nvshmem_transport.o $(B)/cuda/gpu.o $(gpu_engine) $(minigda_objs) | backends/nvshmem/transport.map
	$(CXX) -shared -Wl,-z,defs -Wl,-soname,$(@F) -Wl,--version-script=backends/nvshmem/transport.map -o $@ $^ \
		$(CUDA_LIBS) $(LDLIBS)

# The ncclgin plugin (libncclgin.so) likewise; beside it lie the half that holds the kernels, compiled with NCCL's own headers,
# and NCCL's plugin for softnic. Kernels and library must be of one version: the wheel's in .deps, or NCCL_HOME's.
NCCL_HOME ?= $(firstword $(wildcard .deps/cuda/nvidia/nccl) \
	$(shell python3 -c 'import nvidia.nccl as n; print(n.__path__[0])' 2>/dev/null))
NCCL_INCLUDES = -isystem $(NCCL_HOME)/include -isystem $(CUDA_HOME)/include
ncclgin_cuda := $(foreach p,1 2 3 4 5,$(B)/cuda/ncclgin_kernels-$(p).o)
ncclgin_parts := $(B)/cuda/libncclgin.so $(B)/cuda/gic_ncclgin.so
ncclgin_there := $(wildcard $(NCCL_HOME)/include/nccl_device.h)
cuda: $(if $(ncclgin_there),$(ncclgin_parts),no-ncclgin)
no-ncclgin:
	@echo "without the ncclgin backend: it needs NCCL 2.28.9 with its headers (make cuda-deps, or set NCCL_HOME)"
cuda-check: $(ncclgin_parts)
define need_nccl
$(need_nvcc)
@[ -n "$(ncclgin_there)" ] || { echo "no NCCL with nccl_device.h: run make cuda-deps, or set NCCL_HOME"; exit 1; }
endef
$(B)/cuda/libncclgin.so: $(B)/cuda/ncclgin.o | backends/abi/exports.map
	$(CXX) -shared -Wl,-z,defs -Wl,--version-script=backends/abi/exports.map -o $@ $^ $(LDLIBS)
$(B)/cuda/ncclgin.o: backends/ncclgin/ncclgin.cu
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) -DGIC_CUDA_PLUGIN $(DEPS) -x c++ -c $< -o $@
$(B)/cuda/ncclgin_session.o: backends/ncclgin/session.cc
	$(need_nccl)
	$(CXX) $(ALL_CXXFLAGS) -DGIC_CUDA_PLUGIN $(NCCL_INCLUDES) $(DEPS) -c $< -o $@
$(ncclgin_cuda): $(B)/cuda/ncclgin_kernels-%.o: backends/ncclgin/ncclgin_cuda.cu
	$(need_nccl)
	$(NVCC) $(NVCCFLAGS) -isystem $(NCCL_HOME)/include -DGIC_PART=$* -MMD -MF $@.d -c $< -o $@
$(B)/cuda/gic_ncclgin.so: $(B)/cuda/ncclgin_session.o $(ncclgin_cuda) $(B)/cuda/gpu.o | backends/ncclgin/session.map
	$(CXX) -shared -Wl,-z,defs -Wl,--version-script=backends/ncclgin/session.map -o $@ $^ -L$(NCCL_HOME)/lib \
		-l:libnccl.so.2 $(CUDA_LIBS) $(LDLIBS)

# What a put costs by the release of the headers alone (NCCL_HOME chooses them); it needs no NCCL library and no NIC.
ncclgin_bench := $(if $(ncclgin_there),$(B)/cuda/test/ncclgin_releases_bench)
cuda: $(ncclgin_bench)
cuda-check: $(B)/cuda/test/ncclgin_releases_bench
$(B)/cuda/ncclgin_releases_bench.o: backends/ncclgin/releases_bench.cu
	$(need_nccl)
	$(NVCC) $(NVCCFLAGS) -isystem $(NCCL_HOME)/include -MMD -MF $@.d -c $< -o $@
$(B)/cuda/test/ncclgin_releases_bench: $(B)/cuda/ncclgin_releases_bench.o
	@mkdir -p $(@D)
	$(CXX) -o $@ $< $(CUDA_LIBS) $(LDLIBS)

ncclgin_net := $(B)/cuda/gic_ncclgin_net.so
cuda cuda-check: $(ncclgin_net)
$(B)/cuda/ncclgin_gin_memory.o: backends/ncclgin/gin_memory_cuda.cc
	$(need_nvcc)
	$(CXX) $(ALL_CXXFLAGS) -isystem $(CUDA_HOME)/include $(DEPS) -c $< -o $@
$(B)/cuda/ncclgin_gin_relay.o: backends/ncclgin/gin_relay.cu
	$(need_nvcc)
	$(NVCC) $(NVCCFLAGS) -MMD -MF $@.d -c $< -o $@
$(ncclgin_net): $(ncclgin_net_src:%.cc=$(B)/obj/%.o) $(B)/cuda/ncclgin_gin_memory.o $(B)/cuda/ncclgin_gin_relay.o \
		$(B)/cuda/gpu.o $(gpu_engine) $(minigda_objs) | backends/ncclgin/net.map
	$(CXX) -shared -Wl,-z,defs -Wl,--version-script=backends/ncclgin/net.map -o $@ $^ $(CUDA_LIBS) $(LDLIBS)
ncclgin_gpu_test := $(B)/cuda/test/ncclgin_memory_test
cuda cuda-check: $(ncclgin_gpu_test)
$(B)/cuda/ncclgin_memory_test.o: backends/ncclgin/gin_memory_test.cu
	$(need_nvcc)
	$(NVCC) $(NVCCFLAGS) -MMD -MF $@.d -c $< -o $@
$(ncclgin_gpu_test): $(B)/cuda/ncclgin_memory_test.o $(B)/cuda/ncclgin_gin_memory.o $(B)/cuda/ncclgin_gin_relay.o \
		$(B)/obj/backends/ncclgin/gin_group.o
	@mkdir -p $(@D)
	$(CXX) -o $@ $^ $(CUDA_LIBS) $(LDLIBS)

# All that a GPU machine without Go, compiler and network needs.
dist: $(B)/gic plugins cuda ## build build/dist/: gic and the plugins, stripped, to carry to a GPU machine
	@rm -rf $(B)/dist && mkdir -p $(B)/dist
	cp $(B)/gic $(plugins) $(B)/dist/
	cp $(cuda_plugins) $(if $(nvshmem_there),$(nvshmem_parts)) $(if $(ncclgin_there),$(ncclgin_parts)) $(ncclgin_net) $(ncclgin_gpu_test) \
		$(softnic_gpu_programs) $(floor_gpu_benches) $(B)/dist/
	strip $(B)/dist/*
	@size=$$(du -sm $(B)/dist | cut -f1); [ $$size -lt 60 ] || { echo "$(B)/dist: $$size MiB, want below 60"; exit 1; }
	@! ls $(B)/dist | grep -E '^lib(cud|nccl[.]|nvidia|nvshmem_)' || { echo "$(B)/dist holds an NVIDIA library"; exit 1; }

csrc = $(shell git ls-files '*.c' '*.h' '*.cc' '*.cu' '*.cuh')
STATICCHECK_VERSION := v0.8.2
STATICCHECK := .deps/bin/staticcheck-$(STATICCHECK_VERSION)
$(STATICCHECK):
	GOBIN=$(CURDIR)/.deps/bin $(GO) install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)
	mv .deps/bin/staticcheck $@
lint: $(STATICCHECK) ## gofmt, vet, staticcheck, clang-format
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "gofmt: $$out"; exit 1; }
	$(GO) vet ./...
	$(STATICCHECK) ./...
	clang-format --dry-run --Werror $(csrc)
fmt: ## format all sources
	gofmt -w $$(git ls-files '*.go')
	clang-format -i $(csrc)
clean:
	rm -rf $(B)
help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

-include $(shell find $(B)/obj $(B)/san $(B)/cuda -name '*.d' 2>/dev/null)
