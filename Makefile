# make            build every process into build/bin (with CUDA where nvcc is found; CUDA=0: without)
# make check      build and run the unit tests (GPU tests are skipped where there is no GPU)
# make check-stack   the whole-stack tests: real processes, restarted and killed
# make asan|ubsan|tsan   the unit tests under a sanitizer, each in its own build folder
# make fuzz       run each fuzzer for FUZZ_SECONDS (clang)
# make bench-smoke   time the start, a restart and a token; table and JSON
# make bench-start   time cold and cached starts of a SIZE_GIB model beside the limits of drive and RAM
# make bench-gpu     time decoding by budget and context beside the limits of the machine; ONLY=decode,cpu
# make bench-cpu     the CPU's kernels beside reads of RAM, with THREADS="1 2" threads
# make lint       cppcheck, clang-tidy, shellcheck
# make format     clang-format every source; make format-check fails on a difference
# make PROBE=1   kernels write down when they came how far, for gpu_decode; in a build folder of its own
# make compdb     compile_commands.json for clangd
# make V=1        show full command lines
#
# A new source file needs no line here: a folder's .c files (without main.c) are its archive, a test
# links with all archives, and X_none.c stands in for X.cu in a build without CUDA.

CC     ?= cc
CXX    ?= c++
NVCC   ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
BUILD  ?= build
CUARCH ?= all-major
SAN    ?=
# Sanitizers look at host code: their builds are made without CUDA.
CUDA   ?= $(if $(SAN),0,$(if $(NVCC),1,0))
FUZZ_SECONDS ?= 60
# A test that is not done by then hangs: the slowest takes a tenth, under a sanitizer.
TEST_LIMIT_S ?= 900

WARN    := -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes \
           -Wvla -Wformat=2 -Wimplicit-fallthrough
# No contraction: a result must not depend on which loop the compiler fused a multiply in.
override CFLAGS   += -std=c11 -O2 -g -pthread -ffp-contract=off $(WARN) \
                     $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
override CPPFLAGS += -D_GNU_SOURCE -DPCRE2_CODE_UNIT_WIDTH=8 -I. -I$(BUILD)/gen -MMD -MP
override LDFLAGS  += -pthread $(if $(SAN),-fsanitize=$(SAN))
# nng is linked statically, some of its calls mended: common/nng_mend.c says why.
LDLIBS  := -Wl,--wrap=epoll_ctl,--wrap=sendmsg,--wrap=nni_aio_begin,--wrap=nng_stream_recv \
           -Wl,--wrap=nng_stream_send,--undefined=__wrap_epoll_ctl \
           -l:libnng.a -lmbedtls -lmbedx509 -lmbedcrypto -lprotobuf-c -lxxhash -lpcre2-8 -ljansson -lm
PROBES := $(if $(PROBE),-DCUDA_PROBE)
NVCCFLAGS = -std=c++17 -O3 -g -lineinfo -arch=$(CUARCH) --fmad=true -I. -I$(BUILD)/gen -MMD -MP \
            -Xcompiler -Wall,-Wextra,-pthread $(PROBES)
ifeq ($(CUDA),1)
CUDA_LIB := $(dir $(abspath $(dir $(NVCC))))lib64
LDLIBS   += -L$(CUDA_LIB) -lcudart_static -lrt -ldl -lstdc++
endif

# Q hides the command line and prints a short one; V=1 shows everything.
ifeq ($(V),)
say = @echo "  $1 $@";
endif

FOLDERS  := common loader pinner worker scheduler tests
PROGRAMS := loader pinner worker scheduler hearth
# The GPU's tests without a GPU (not of memory lent to another process), and some of their own.  Not
# with ThreadSanitizer: it does not know fibers.
CUDA_CPU_GPU := $(filter-out device,$(patsubst tests/test_gpu_%.c,%,$(wildcard tests/test_gpu_*.c)))
CUDA_CPU := $(if $(filter thread,$(SAN)),,$(CUDA_CPU_GPU) choice landed orders sharing small_device token_loop)
TESTS    := $(patsubst tests/%.c,%,$(wildcard tests/test_*.c)) $(CUDA_CPU:%=test_cuda_cpu_%)
STACK    := $(patsubst tests/stack/%.c,%,$(wildcard tests/stack/stack_*.c))
FUZZERS  := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
BENCHES  := $(patsubst tests/bench/%.c,%,$(wildcard tests/bench/*.c))
SHIMS    := $(patsubst tests/shim/%.c,%,$(wildcard tests/shim/*.c))

# What was linked with CUDA does not serve a build without, nor the other way round.
ifneq ($(CUDA),$(shell cat $(BUILD)/cuda 2>/dev/null))
$(shell rm -rf $(BUILD)/lib $(BUILD)/bin; mkdir -p $(BUILD); echo $(CUDA) >$(BUILD)/cuda)
endif

# Objects keep their source path under obj/; programs go to bin/, where no folder has their name.
obj = $(patsubst %,$(BUILD)/obj/%.o,$1)
lib = $(patsubst %,$(BUILD)/lib/%.a,$1)

PROTO_C := $(patsubst proto/%.proto,$(BUILD)/gen/proto/%.pb-c.c,$(wildcard proto/*.proto))
PROTO_O := $(PROTO_C:%.c=%.o)
MAINS   := loader/main.c pinner/main.c worker/main.c scheduler/main.c scheduler/hearth.c
SOURCE_C  := $(filter-out $(MAINS) tests/test_%.c,$(wildcard $(FOLDERS:%=%/*.c)))
SOURCE_CU := $(wildcard $(FOLDERS:%=%/*.cu))
ifeq ($(CUDA),1)
SOURCES_USED := $(filter-out %_none.c,$(SOURCE_C)) $(SOURCE_CU)
else
SOURCES_USED := $(SOURCE_C)
endif

.PHONY: all check check-stack asan ubsan tsan fuzz bench-smoke bench-start bench-gpu bench-cpu lint format format-check compdb clean
.SECONDARY:
all: $(PROGRAMS:%=$(BUILD)/bin/%) $(BENCHES:%=$(BUILD)/bin/%)
	@test "$(CUDA)" = 1 || echo "  built without CUDA: the cpu device only"

# A program is its main and the archives behind it; users before what they use.
LIBS_loader    := loader common
LIBS_pinner    := pinner common
LIBS_worker    := worker common
LIBS_scheduler := scheduler common
LIBS_hearth    := scheduler common
define program_rule
$(BUILD)/bin/$1: $(call obj,$(if $(filter hearth,$1),scheduler/hearth.c,$1/main.c)) \
		$(call lib,$(LIBS_$1) proto)
	@mkdir -p $$(@D)
	$$(call say,LINK)$(CC) $$(LDFLAGS) -o $$@ $$^ $$(LDLIBS)
endef
$(foreach p,$(PROGRAMS),$(eval $(call program_rule,$p)))

ALL_LIBS := $(call lib,tests loader pinner worker scheduler common proto)
define test_rule
$(BUILD)/bin/$1: $(call obj,$2) $(ALL_LIBS)
	@mkdir -p $$(@D)
	$$(call say,LINK)$(CC) $$(LDFLAGS) -o $$@ $(call obj,$2) -Wl,--start-group $(ALL_LIBS) -Wl,--end-group -lcmocka $$(LDLIBS)
endef
$(foreach t,$(filter-out test_cuda_cpu_%,$(TESTS)),$(eval $(call test_rule,$t,tests/$t.c)))
$(foreach t,$(STACK),$(eval $(call test_rule,$t,tests/stack/$t.c)))
$(foreach t,$(BENCHES),$(eval $(call test_rule,$t,tests/bench/$t.c)))

# The GPU's tests once more, every .cu compiled for the CPU: tests/cuda_cpu/cuda_cpu.h says what for.
# These objects come before the archives, so what the archives have in their place is not linked.
CUDA_CPU_O := $(patsubst %,$(BUILD)/cuda_cpu/%.o,$(filter-out tests/%,$(SOURCE_CU)) $(wildcard tests/cuda_cpu/*.cc))
CUDA_CPU_FLAGS = -std=c++17 $(filter-out -std=c11 -Wstrict-prototypes -Wmissing-prototypes -Wshadow,$(CFLAGS))
define cuda_cpu_rule
$(BUILD)/bin/test_cuda_cpu_$1: $2 $(CUDA_CPU_O) $(ALL_LIBS)
	@mkdir -p $$(@D)
	$$(call say,LINK)$(CXX) $$(LDFLAGS) -Wl,-T,tests/cuda_cpu/shared.ld -o $$@ $$(filter %.o,$$^) \
		-Wl,--start-group $(ALL_LIBS) -Wl,--end-group -lcmocka $$(LDLIBS)
endef
$(foreach t,$(CUDA_CPU_GPU),$(eval $(call cuda_cpu_rule,$t,$(call obj,tests/test_gpu_$t.c))))
$(foreach t,sharing small_device token_loop,$(eval $(call cuda_cpu_rule,$t,$(call obj,tests/cuda_cpu/$t.c))))
$(foreach t,choice landed orders,$(eval $(call cuda_cpu_rule,$t,$(BUILD)/cuda_cpu/tests/cuda_cpu/$t.cu.o)))
$(BUILD)/cuda_cpu/%.cu.o: %.cu | $(PROTO_C)
	@mkdir -p $(@D)
	$(call say,CXX )$(CXX) -Itests/cuda_cpu $(CPPFLAGS) $(CUDA_CPU_FLAGS) -Wno-unknown-pragmas \
		-mavx2 -mfma -mf16c -x c++ -c -o $@ $<
# Itself without sanitizers: it switches stacks, and they would only slow it down.
$(BUILD)/cuda_cpu/%.cc.o: %.cc
	@mkdir -p $(@D)
	$(call say,CXX )$(CXX) $(CPPFLAGS) $(filter-out -fsanitize%,$(CUDA_CPU_FLAGS)) -c -o $@ $<

# Preloaded into whole processes, run.sh's shell among them: without sanitizers.
$(SHIMS:%=$(BUILD)/lib/%.so): $(BUILD)/lib/%.so: tests/shim/%.c
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(CPPFLAGS) $(filter-out -fsanitize%,$(CFLAGS)) -shared -fPIC -o $@ $<

define lib_rule
$(BUILD)/lib/$1.a: $(call obj,$(filter $1/%,$(SOURCES_USED)))
	@mkdir -p $$(@D)
	$$(call say,AR  )rm -f $$@ && ar rcs $$@ $$^
endef
$(foreach f,$(FOLDERS),$(eval $(call lib_rule,$f)))
$(BUILD)/lib/proto.a: $(PROTO_O)
	@mkdir -p $(@D)
	$(call say,AR  )rm -f $@ && ar rcs $@ $^

$(BUILD)/gen/proto/%.pb-c.c $(BUILD)/gen/proto/%.pb-c.h: proto/%.proto
	@mkdir -p $(@D)
	$(call say,PROTO)protoc-c --c_out=$(BUILD)/gen $<
$(PROTO_O): %.o: %.c | $(PROTO_C)
	$(call say,CC  )$(CC) $(CPPFLAGS) $(filter-out $(WARN),$(CFLAGS)) -c -o $@ $<

AVX512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
AVX2   := -mavx2 -mfma -mf16c
$(BUILD)/obj/%_avx512.c.o: override CFLAGS += $(AVX512)
$(BUILD)/obj/%_vnni.c.o: override CFLAGS += $(AVX512) -mavx512vnni
$(BUILD)/obj/%_avx2.c.o: override CFLAGS += $(AVX2)
$(BUILD)/obj/%_avxvnni.c.o: override CFLAGS += $(AVX2) -mavxvnni
$(BUILD)/obj/%.c.o: %.c | $(PROTO_C)
	@mkdir -p $(@D)
	$(call say,CC  )$(CC) $(CPPFLAGS) $(PROBES) $(CFLAGS) -c -o $@ $<
$(BUILD)/obj/%.cu.o: %.cu | $(PROTO_C)
	@mkdir -p $(@D)
	$(call say,NVCC)$(NVCC) $(NVCCFLAGS) -c -o $@ $<

# Exit 77 = skipped, said aloud.
check: $(TESTS:%=$(BUILD)/bin/%)
	@failed=; for t in $^; do echo "== $$t"; timeout --foreground -k 10 $(TEST_LIMIT_S) $$t; s=$$?; \
		[ $$s != 124 ] && [ $$s != 137 ] || echo "== $$t: not done after $(TEST_LIMIT_S) s"; \
		if [ $$s = 77 ]; then echo "== $$t: SKIPPED"; elif [ $$s != 0 ]; then failed="$$failed $$t"; fi; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

check-stack: all $(STACK:%=$(BUILD)/bin/%) $(SHIMS:%=$(BUILD)/lib/%.so)
	@set -e; for t in $(STACK:%=$(BUILD)/bin/%); do echo "== $$t"; $$t; done

asan:  ; LSAN_OPTIONS=suppressions=$(CURDIR)/tests/lsan.supp $(MAKE) check BUILD=build/asan SAN=address
ubsan: ; $(MAKE) check BUILD=build/ubsan SAN=undefined CFLAGS=-fno-sanitize-recover=all
tsan:  ; TSAN_OPTIONS=suppressions=$(CURDIR)/tests/tsan.supp $(MAKE) check BUILD=build/tsan SAN=thread

fuzz: $(FUZZERS:%=$(BUILD)/bin/%)
	@set -e; for f in $(FUZZERS); do mkdir -p $(BUILD)/corpus/$$f; echo "== $$f"; \
		$(BUILD)/bin/$$f -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 -verbosity=0 \
		$(BUILD)/corpus/$$f $$(ls -d tests/fuzz/seeds/$$f 2>/dev/null); done

# Fuzzers say in a comment line "links: a.c b.c" what they are built from.
$(BUILD)/bin/fuzz_%: tests/fuzz/fuzz_%.c $(PROTO_C) $(wildcard $(FOLDERS:%=%/*.[ch]) proto/*.h)
	@mkdir -p $(@D)
	$(call say,FUZZ)clang -std=c11 -O1 -g -D_GNU_SOURCE -I. -I$(BUILD)/gen -fsanitize=fuzzer,address,undefined \
		-fno-sanitize-recover=undefined -o $@ $< $$(sed -n 's/^.*links: *//p' $<) $(PROTO_C) \
		-lprotobuf-c -lxxhash -lm

bench-smoke: all
	$(BUILD)/bin/smoke

# Models are kept for the next time, in BENCH_DIR: of SIZE_GIB each, on the drive to be measured.
BENCH_DIR ?= $(BUILD)

# Without SIZE_GIB the whole shape, 17.3 GiB.  GPU_OPTIONS are for the program: --device cpu, say.
GPU_MODEL   := $(BENCH_DIR)/gpu-$(or $(SIZE_GIB),whole)
GPU_LAYERS  := $(if $(SIZE_GIB),--size-gib $(SIZE_GIB))
GPU_ROUTERS := even $(if $(ONLY),$(findstring skewed,$(ONLY)),skewed)
$(GPU_MODEL)-%.gguf: | $(BUILD)/bin/make_model
	$(BUILD)/bin/make_model --shape qwen3-30b-a3b $(GPU_LAYERS) --zipf $(if $(filter skewed,$*),1,0) $@.part
	mv $@.part $@
bench-gpu: all $(GPU_ROUTERS:%=$(GPU_MODEL)-%.gguf)
	$(BUILD)/bin/gpu --model $(GPU_MODEL)-even.gguf $(if $(filter skewed,$(GPU_ROUTERS)),--skewed $(GPU_MODEL)-skewed.gguf) \
		$(if $(ONLY),--only $(ONLY)) $(GPU_OPTIONS)

# malloc asks for huge pages, as an arena has them.
bench-cpu: $(BUILD)/bin/cpu_forward $(BUILD)/bin/make_model
	test -f $(BENCH_DIR)/cpu.gguf || { $(BUILD)/bin/make_model --shape qwen3-30b-a3b --size-gib 3 \
		$(BENCH_DIR)/cpu.part && mv $(BENCH_DIR)/cpu.part $(BENCH_DIR)/cpu.gguf; }
	GLIBC_TUNABLES=glibc.malloc.hugetlb=1 $(BUILD)/bin/cpu_forward --json $(BUILD)/bench-cpu.json \
		$(BENCH_DIR)/cpu.gguf $(or $(THREADS),1 $(shell nproc))

SIZE_GIB  ?= 4
bench-start: all
	test -f $(BENCH_DIR)/start-$(SIZE_GIB).gguf || { $(BUILD)/bin/make_model --shape qwen3-30b-a3b \
		--size-gib $(SIZE_GIB) --tokenizer none $(BENCH_DIR)/start-$(SIZE_GIB).part && \
		mv $(BENCH_DIR)/start-$(SIZE_GIB).part $(BENCH_DIR)/start-$(SIZE_GIB).gguf; }
	$(BUILD)/bin/start --model $(BENCH_DIR)/start-$(SIZE_GIB).gguf

SOURCES := $(wildcard $(FOLDERS:%=%/*.[ch]) $(FOLDERS:%=%/*.cu) $(FOLDERS:%=%/*.cuh) proto/*.h tests/*/*.[ch] tests/*/*.cc tests/*/*.cu)
# A struct error is written by who fails, which cppcheck takes for a use of nothing: ctuuninitvar.
lint: $(PROTO_C)
	cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,portability --inline-suppr \
		--suppress=ctuuninitvar \
		-D_GNU_SOURCE -I. $(filter %.c,$(SOURCES))
	printf '%s\n' $(filter-out %_avx512.c %_avx2.c %_vnni.c %_avxvnni.c,$(filter %.c,$(SOURCES))) | xargs -P$$(nproc) -n8 sh -c \
		'clang-tidy --quiet "$$@" -- -std=c11 -D_GNU_SOURCE -DPCRE2_CODE_UNIT_WIDTH=8 -I. -I$(BUILD)/gen' tidy
	shellcheck run.sh .ci/run .ci/packages
format:       ; clang-format -i $(SOURCES)
format-check: ; clang-format --dry-run --Werror $(SOURCES)
compdb:       ; $(MAKE) clean && bear -- $(MAKE) all $(TESTS:%=$(BUILD)/bin/%)
clean:        ; rm -rf build compile_commands.json

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
