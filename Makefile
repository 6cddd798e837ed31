# Tiara's only makefile: checked in, not generated, not recursive.
#
#   make              libtiara.so, libtiara.a, the programs and their tests' prerequisites, into build/
#   make help         all targets
#
# Settings come from build/config.mk, which ./configure writes; `make` runs configure when it has not been run. A word
# on the command line wins: make CFLAGS=-O3. Out of tree, configure leaves a two-line Makefile that sets srcdir and
# includes this one. A new source file needs no line here: sources are found by name, modules by the list below.

srcdir ?= .
B := build

# The layers of lib/, in the order in which they may include each other (scripts/check-includes).
MODULES := base topo plan algo tune mem redop xport exec elem comm call api
# test/<kind>/*.c, each one program, and test/<kind>/*.sh; in the order in which they run.
TEST_KINDS := unit plan conform ranks cuda mpi pmpi train fault vcluster cli
PROGRAMS := tiara-bench tiara-info tiara-plan

# ---- Settings -------------------------------------------------------------------------------------------------------
NEED_CONFIG := $(filter-out help lint dist clean distclean,$(or $(MAKECMDGOALS),all))
ifneq ($(NEED_CONFIG),)
include $(B)/config.mk
endif

VERSION ?= $(shell sed -n 's/^AC_INIT.*\[\([0-9][0-9.]*\)\].*/\1/p' $(srcdir)/configure.ac)
SOVERSION := 0
DIST := tiara-$(VERSION)

# -ffp-contract=off: bits must not depend on whether the machine has fused multiply-add.
# -fno-semantic-interposition: -fPIC calls inside the library need no detour; only TIARA_* can be replaced anyway.
# config.h first in every file, so that no file can forget it.
BASE_FLAGS := -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -fPIC -pthread -ffp-contract=off \
	-fno-semantic-interposition -fmacro-prefix-map=$(srcdir)/= -include $(B)/config.h \
	-I$(srcdir)/lib -I$(srcdir)/include -I$(srcdir)
COMPILE = $(CC) $(BASE_FLAGS) $(EXTRA_FLAGS) $(CPPFLAGS) $(MPI_CFLAGS) $(CFLAGS) $(SANITIZE_FLAGS) -MMD -MP
LINK = $(CC) $(CFLAGS) $(SANITIZE_FLAGS) -pthread $(LDFLAGS)
LINK_LIBS = $(HWLOC_LIBS) $(MPI_LIBS) $(LIBS) -ldl -lm

# Kernels: one binary for each architecture, and PTX for those to come. --fmad=false as -ffp-contract=off above. Guards
# of static variables in nvcc's host code would need the C++ runtime.
CUDA_PTX := $(or $(lastword $(CUDA_ARCHS)),80)
GENCODE := $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) -gencode arch=compute_$(CUDA_PTX),code=compute_$(CUDA_PTX)
COMPILE_CUDA = $(NVCC) -ccbin $(firstword $(CXX)) -std=c++17 -O3 --fmad=false --threads 2 $(NVCC_FLAGS) $(GENCODE) -Xcompiler -fPIC,-fno-threadsafe-statics \
	-I$(srcdir) -MMD -MP
COMPILE_ON_CPU = $(CXX) -x c++ -std=c++17 -DTIARA_KERNELS_ON_CPU -Wall -Wextra -fPIC -pthread -ffp-contract=off \
	-I$(srcdir) $(CXXFLAGS) $(SANITIZE_FLAGS) -MMD -MP
CUDA_LIBS = $(if $(CUDA_LIBDIR),-L$(CUDA_LIBDIR) -Wl$(comma)--enable-new-dtags$(comma)-rpath$(comma)$(CUDA_LIBDIR)) -lcudart
comma := ,

# `make V=1` shows the commands.
Q := $(if $(V),,@)
say = $(if $(V),,@echo '  $(1)')

# ---- What there is --------------------------------------------------------------------------------------------------
objects = $(patsubst $(srcdir)/%.c,$(B)/%.o,$(1))

LIB_SRC := $(foreach m,$(MODULES),$(sort $(wildcard $(srcdir)/lib/$(m)/*.c)))
ifneq ($(HAVE_X86_SIMD),yes)
LIB_SRC := $(filter-out %_avx2.c %_avx512.c,$(LIB_SRC))
endif
LIB_OBJ := $(call objects,$(LIB_SRC))

LIB_SO := $(B)/libtiara.so.$(VERSION)
LIB_A := $(B)/libtiara.a

# The interposition library: the shim, which is preloaded and refers to no MPI, and the engine, which it opens.
SHIM_OBJ := $(call objects,$(sort $(wildcard $(srcdir)/lib/pmpi/shim*.c)))
ENGINE_OBJ := $(call objects,$(sort $(wildcard $(srcdir)/lib/pmpi/engine*.c)))
ENGINE_BASE := $(addprefix $(B)/lib/base/,alloc.o log.o)
SHIM_SO := $(B)/libtiara-pmpi.so.$(VERSION)
ENGINE_SO := $(B)/libtiara-pmpi-engine.so.$(VERSION)
PMPI_LIBS := $(if $(filter yes,$(HAVE_PMPI)),$(B)/libtiara-pmpi.so $(B)/libtiara-pmpi-engine.so)

# The CUDA part is a shared object of its own, which libtiara.so opens where there is a driver.
CUDA_OBJ := $(call objects,$(sort $(wildcard $(srcdir)/lib/gpu/*.c)))
KERNEL_SRC := $(sort $(wildcard $(srcdir)/kernels/*.cu))
KERNEL_OBJ := $(KERNEL_SRC:$(srcdir)/%.cu=$(B)/%.o)
CUDA_SO := $(B)/libtiara-cuda.so.$(VERSION)
# For tests: the kernels for the CPU, and the CUDA part as an archive.
ON_CPU_OBJ := $(KERNEL_SRC:$(srcdir)/kernels/%.cu=$(B)/kernels/on_cpu/%.o)
GPU_A := $(B)/test/libgpu.a
STANDIN := $(B)/test/cuda/standin
STANDIN_OBJ := $(patsubst $(srcdir)/%.cc,$(B)/%.o,$(sort $(wildcard $(srcdir)/test/cuda/cudart/*.cc)))
STANDIN_SO := $(addprefix $(STANDIN)/,libcudart.so.$(CUDA_MAJOR) libcuda.so.1 libkernels_on_cpu.so)

# A program is bench/<name>.c; it takes what it needs of bench/bench_*.c.
PROGRAM_SRC := $(wildcard $(PROGRAMS:%=$(srcdir)/bench/%.c))
PROGRAM_OBJ := $(call objects,$(PROGRAM_SRC))
PROGRAM_BIN := $(PROGRAM_OBJ:$(B)/bench/%.o=$(B)/%)
# It links with the CUDA runtime, and so is for machines that have it: not installed.
GPU_PROGRAM_BIN := $(if $(filter yes,$(HAVE_CUDA)),$(B)/tiara-kernels)
BENCH_OBJ := $(call objects,$(sort $(wildcard $(srcdir)/bench/bench_*.c)))
BENCH_A := $(B)/bench/libbench.a

# What tests share: the harness, and the helpers of each kind, which have a header of their own beside the tests.
HELPER_SRC := $(wildcard $(patsubst %.h,%.c,$(wildcard $(TEST_KINDS:%=$(srcdir)/test/%/*.h))))
ifneq ($(HAVE_CUDA),yes)
HELPER_SRC := $(filter-out $(srcdir)/test/cuda/%,$(HELPER_SRC))
endif
HARNESS_OBJ := $(call objects,$(sort $(wildcard $(srcdir)/test/harness/*.c) $(HELPER_SRC)))
HARNESS_A := $(B)/test/libharness.a
# In the place of Tiara, for programs that are linked without it.
PLAIN_OBJ := $(B)/test/harness/plain/no_tiara.o
TEST_OBJ := $(filter-out $(HARNESS_OBJ),$(call objects,$(sort $(wildcard $(TEST_KINDS:%=$(srcdir)/test/%/*.c)))))
ifneq ($(HAVE_CUDA),yes)
TEST_OBJ := $(filter-out $(B)/test/cuda/%,$(TEST_OBJ))
endif
ifneq ($(HAVE_CXX),yes)
TEST_OBJ := $(filter-out %_kernels.o,$(TEST_OBJ))
endif
ifneq ($(HAVE_PMPI),yes)
TEST_OBJ := $(filter-out $(B)/test/pmpi/%,$(TEST_OBJ))
endif
TEST_BIN := $(TEST_OBJ:%.o=%)
PMPI_TOOLS := $(if $(filter yes,$(HAVE_PMPI)),$(addprefix $(B)/test/pmpi/tools/,begin.so count.so init.so status.so wrong.so job.so local))

# Programs in Fortran, which are no Check suites; f_body.inc and what it includes is what most of them do.
ifeq ($(HAVE_PMPI) $(HAVE_FORTRAN),yes yes)
FORTRAN_TEST_BIN := $(patsubst $(srcdir)/test/%,$(B)/test/%,$(basename $(wildcard $(srcdir)/test/pmpi/f_*.F90 $(srcdir)/test/pmpi/f_*.F)))
endif

MAN := $(sort $(wildcard $(srcdir)/doc/*.1 $(srcdir)/doc/*.3 $(srcdir)/doc/*.7))

.PHONY: all programs tests check install uninstall bundle dist distcheck lint clean distclean help
.DELETE_ON_ERROR:
.SECONDARY:

all: $(B)/libtiara.so $(LIB_A) $(PMPI_LIBS) $(PROGRAM_BIN) $(GPU_PROGRAM_BIN) $(if $(filter yes,$(HAVE_CUDA)),$(B)/libtiara-cuda.so)

# ---- Building -------------------------------------------------------------------------------------------------------
# Kernels for one instruction set each; redop calls them only where the machine has it.
$(B)/lib/redop/%_avx2.o: EXTRA_FLAGS := -mavx2 -mfma -mf16c
$(B)/lib/redop/%_avx512.o: EXTRA_FLAGS := -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl
$(B)/lib/topo/%.o: EXTRA_FLAGS := $(HWLOC_CFLAGS)
$(B)/bench/tiara-kernels.o: EXTRA_FLAGS := $(CUDA_CFLAGS)
$(B)/lib/gpu/%.o: EXTRA_FLAGS := $(CUDA_CFLAGS) -fvisibility=hidden
$(B)/lib/pmpi/engine%.o: EXTRA_FLAGS := -fvisibility=hidden
# Tests reach everything: hidden symbols through the archive, and each other's headers from the top of the tree.
$(B)/test/%.o: EXTRA_FLAGS := -I$(srcdir)/test/harness $(CHECK_CFLAGS)
$(B)/test/cuda/%.o: EXTRA_FLAGS := -I$(srcdir)/test/harness $(CHECK_CFLAGS) $(CUDA_CFLAGS)

# The compiler's command line lives in these files: a new configuration rebuilds everything.
$(B)/%.o: $(srcdir)/%.c $(B)/config.mk $(B)/config.h
	$(call say,CC    $*.c)
	$(Q)mkdir -p $(@D)
	$(Q)$(COMPILE) -c -o $@ $<

$(B)/kernels/%.o: $(srcdir)/kernels/%.cu $(B)/config.mk
	$(call say,NVCC  kernels/$*.cu)
	$(Q)mkdir -p $(@D)
	$(Q)$(COMPILE_CUDA) -MF $(@:.o=.d) -c -o $@ $<
$(B)/kernels/on_cpu/%.o: $(srcdir)/kernels/%.cu $(B)/config.mk
	$(call say,CXX   kernels/$*.cu)
	$(Q)mkdir -p $(@D)
	$(Q)$(COMPILE_ON_CPU) -c -o $@ $<

# One set of objects for both: the difference would be one -fPIC, and a second build.
$(LIB_A): $(LIB_OBJ)
$(BENCH_A): $(BENCH_OBJ)
$(HARNESS_A): $(HARNESS_OBJ)
$(GPU_A): $(CUDA_OBJ) $(KERNEL_OBJ)
$(LIB_A) $(BENCH_A) $(HARNESS_A) $(GPU_A):
	$(call say,AR    $(@:$(B)/%=%))
	$(Q)mkdir -p $(@D) && rm -f $@ && $(AR) cr $@ $^ && $(RANLIB) $@

# nodelete: MPI keeps callbacks into it until MPI_Finalize, and a thread may run in it.
$(LIB_SO): $(LIB_OBJ) $(srcdir)/lib/libtiara.map
	$(call say,LINK  $(@:$(B)/%=%))
	$(Q)$(LINK) -shared -Wl,-z,nodelete -Wl,-soname,libtiara.so.$(SOVERSION) -Wl,--version-script=$(srcdir)/lib/libtiara.map \
		-o $@ $(LIB_OBJ) $(LINK_LIBS)
$(B)/libtiara.so: $(LIB_SO)
	$(Q)ln -sf $(<F) $(B)/libtiara.so.$(SOVERSION) && ln -sf libtiara.so.$(SOVERSION) $@

# mpicc adds the MPI, and --as-needed takes it away again, as nothing refers to it.
$(SHIM_SO): $(SHIM_OBJ) $(srcdir)/lib/libtiara-pmpi.map
	$(call say,LINK  $(@:$(B)/%=%))
	$(Q)$(LINK) -Wl,--as-needed -shared -Wl,-z,defs -Wl,-soname,libtiara-pmpi.so.$(SOVERSION) \
		-Wl,--version-script=$(srcdir)/lib/libtiara-pmpi.map -o $@ $(SHIM_OBJ) -ldl
$(B)/libtiara-pmpi.so: $(SHIM_SO)
	$(Q)ln -sf $(<F) $(B)/libtiara-pmpi.so.$(SOVERSION) && ln -sf libtiara-pmpi.so.$(SOVERSION) $@

# It uses the libtiara.so beside it, and has its own copy of what it needs of lib/base.
$(ENGINE_SO): $(ENGINE_OBJ) $(ENGINE_BASE) $(LIB_SO) $(srcdir)/lib/libtiara-pmpi-engine.map | $(B)/libtiara.so
	$(call say,LINK  $(@:$(B)/%=%))
	$(Q)$(LINK) -shared -Wl,-z,defs -Wl,-soname,libtiara-pmpi-engine.so.$(SOVERSION) \
		-Wl,--version-script=$(srcdir)/lib/libtiara-pmpi-engine.map -Wl,--enable-new-dtags,-rpath,'$$ORIGIN' \
		-o $@ $(ENGINE_OBJ) $(ENGINE_BASE) $(LIB_SO) $(MPI_LIBS) $(LIBS) -ldl -lm
$(B)/libtiara-pmpi-engine.so: $(ENGINE_SO)
	$(Q)ln -sf $(<F) $(B)/libtiara-pmpi-engine.so.$(SOVERSION) && ln -sf libtiara-pmpi-engine.so.$(SOVERSION) $@

# It has its own copy of what it needs of lib/, and shows one symbol.
$(CUDA_SO): $(CUDA_OBJ) $(KERNEL_OBJ) $(LIB_A) $(srcdir)/lib/libtiara-cuda.map
	$(call say,LINK  $(@:$(B)/%=%))
	$(Q)$(LINK) -shared -Wl,-z,defs -Wl,-soname,libtiara-cuda.so.$(SOVERSION) -Wl,--version-script=$(srcdir)/lib/libtiara-cuda.map \
		-o $@ $(CUDA_OBJ) $(KERNEL_OBJ) $(LIB_A) $(CUDA_LIBS) -lm
$(B)/libtiara-cuda.so: $(CUDA_SO)
	$(Q)ln -sf $(<F) $(B)/libtiara-cuda.so.$(SOVERSION) && ln -sf libtiara-cuda.so.$(SOVERSION) $@

# Programs and tests hold the library itself: they run from the build tree without an rpath, and installed without
# ldconfig.
$(B)/tiara-%: $(B)/bench/tiara-%.o $(BENCH_A) $(LIB_A)
	$(call say,LINK  $(@F))
	$(Q)$(LINK) -o $@ $^ $(LINK_LIBS)

$(B)/tiara-kernels: $(B)/bench/tiara-kernels.o $(GPU_A) $(BENCH_A) $(LIB_A)
	$(call say,LINK  $(@F))
	$(Q)$(LINK) -o $@ $^ $(CUDA_LIBS) $(LINK_LIBS)

programs: $(PROGRAM_BIN) $(GPU_PROGRAM_BIN)
tests: $(PMPI_TOOLS) $(TEST_BIN) $(FORTRAN_TEST_BIN) $(if $(filter yes,$(HAVE_CUDA)),$(STANDIN_SO))

# The stand-in for the CUDA runtime and driver (test/cuda/README.md), with the kernels for the CPU beside it.
$(B)/test/cuda/cudart/%.o: $(srcdir)/test/cuda/cudart/%.cc $(B)/config.mk
	$(call say,CXX   test/cuda/cudart/$*.cc)
	$(Q)mkdir -p $(@D)
	$(Q)$(CXX) -std=c++17 -Wall -Wextra -fPIC -pthread -I$(srcdir) $(CUDA_CFLAGS) $(CXXFLAGS) $(SANITIZE_FLAGS) -MMD -MP -c -o $@ $<
$(STANDIN)/libcudart.so.$(CUDA_MAJOR): $(STANDIN_OBJ) $(srcdir)/test/cuda/cudart/cudart.map
	$(Q)mkdir -p $(@D) && sed 's/^libcudart.so.[0-9]*/$(@F)/' $(srcdir)/test/cuda/cudart/cudart.map >$(@D)/cudart.map
	$(Q)$(CXX) $(SANITIZE_FLAGS) -shared -pthread -Wl,-soname,$(@F) -Wl,--version-script=$(@D)/cudart.map -Wl,-z,nodelete -o $@ $(STANDIN_OBJ) -ldl
$(STANDIN)/libcuda.so.1: $(srcdir)/test/cuda/cudart/libcuda.c
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -fPIC -shared -Wl,-soname,$(@F) $(CUDA_CFLAGS) -o $@ $<
$(STANDIN)/libkernels_on_cpu.so: $(ON_CPU_OBJ)
	$(Q)mkdir -p $(@D)
	$(Q)$(CXX) $(SANITIZE_FLAGS) -shared -pthread -o $@ $(ON_CPU_OBJ)
# Tests of the CUDA part run against the stand-in for its runtime (test/cuda/README.md) or, with a GPU, the real one.
CUDA_TEST_BIN := $(filter $(B)/test/cuda/%,$(TEST_BIN))
KERNEL_TEST_BIN := $(filter %_kernels,$(TEST_BIN))
# What the scripts of this kind preload beside the library, a program that opens its MPI itself, and what it opens.
$(B)/test/pmpi/tools/%.so: $(B)/test/pmpi/tools/%.o
	$(Q)$(LINK) -shared -o $@ $< $(MPI_LIBS)
$(B)/test/pmpi/tools/job.so: $(B)/test/pmpi/p_job.o
	$(Q)mkdir -p $(@D) && $(LINK) -shared -o $@ $< $(MPI_LIBS)
$(B)/test/pmpi/tools/local: $(B)/test/pmpi/tools/local.o
	$(Q)$(LINK) -Wl,--as-needed -o $@ $< -ldl
# Plain MPI programs: what they test is preloaded.
PMPI_TEST_BIN := $(filter $(B)/test/pmpi/%,$(TEST_BIN))
$(PMPI_TEST_BIN): %: %.o $(HARNESS_A) $(PLAIN_OBJ) | $(PMPI_LIBS)
	$(call say,LINK  $(@:$(B)/%=%))
	$(Q)$(LINK) -o $@ $< $(HARNESS_A) $(PLAIN_OBJ) $(CHECK_LIBS) $(MPI_LIBS) $(LIBS) -ldl -lm
FORTRAN = $(MPIFORT) -O2 -g $(FORTRAN_FLAGS) -o $@ $<
$(filter $(patsubst $(srcdir)/%.F90,$(B)/%,$(wildcard $(srcdir)/test/pmpi/*.F90)),$(FORTRAN_TEST_BIN)): $(B)/%: $(srcdir)/%.F90 $(wildcard $(srcdir)/test/pmpi/*.inc) | $(PMPI_LIBS)
	$(call say,FC    $(@:$(B)/%=%))
	$(Q)mkdir -p $(@D) && $(FORTRAN)
$(filter $(patsubst $(srcdir)/%.F,$(B)/%,$(wildcard $(srcdir)/test/pmpi/*.F)),$(FORTRAN_TEST_BIN)): $(B)/%: $(srcdir)/%.F | $(PMPI_LIBS)
	$(call say,FC    $(@:$(B)/%=%))
	$(Q)mkdir -p $(@D) && $(FORTRAN)
$(filter-out $(CUDA_TEST_BIN) $(KERNEL_TEST_BIN) $(PMPI_TEST_BIN),$(TEST_BIN)): %: %.o $(HARNESS_A) $(LIB_A)
	$(call say,LINK  $(@:$(B)/%=%))
	$(Q)$(LINK) -Wl,-u,tiara_xport_socket -o $@ $< $(HARNESS_A) $(LIB_A) $(CHECK_LIBS) $(LINK_LIBS)
$(CUDA_TEST_BIN): %: %.o $(HARNESS_A) $(GPU_A) $(LIB_A)
	$(call say,LINK  $(@:$(B)/%=%))
	$(Q)$(LINK) -o $@ $< $(HARNESS_A) $(GPU_A) $(LIB_A) $(CHECK_LIBS) $(CUDA_LIBS) $(LINK_LIBS)
$(KERNEL_TEST_BIN): %: %.o $(ON_CPU_OBJ) $(HARNESS_A) $(LIB_A)
	$(call say,LINK  $(@:$(B)/%=%))
	$(Q)$(CXX) $(CXXFLAGS) $(SANITIZE_FLAGS) -pthread $(LDFLAGS) -o $@ $< $(ON_CPU_OBJ) $(HARNESS_A) $(LIB_A) $(CHECK_LIBS) $(LINK_LIBS)

-include $(patsubst %.o,%.d,$(LIB_OBJ) $(SHIM_OBJ) $(ENGINE_OBJ) $(PLAIN_OBJ) $(CUDA_OBJ) $(KERNEL_OBJ) $(ON_CPU_OBJ) $(STANDIN_OBJ) $(PROGRAM_OBJ) $(GPU_PROGRAM_BIN:$(B)/%=$(B)/bench/%.o) $(BENCH_OBJ) $(HARNESS_OBJ) $(TEST_OBJ))

# ---- Configuring ----------------------------------------------------------------------------------------------------
# A new configure or template repeats the last configuration, options included.
CONFIG_IN := $(addprefix $(srcdir)/,config.mk.in config.h.in tiara.pc.in)
$(B)/config.mk: $(srcdir)/configure $(CONFIG_IN)
	$(Q)if [ -x config.status ]; then ./config.status --recheck --quiet && ./config.status --quiet; \
		else $(srcdir)/configure; fi
	$(Q)touch $@ $(B)/config.h
$(B)/config.h: $(B)/config.mk ;

# A clone gives files the times at which they were written out, so a newer configure.ac alone proves nothing: only the
# autoconf that made the checked-in configure may make it again, and only a real difference replaces it.
$(srcdir)/configure: $(srcdir)/configure.ac
	$(Q)cd $(srcdir) && version=$$(sed -n 's/^# Generated by GNU Autoconf \([0-9.]*[0-9]\).*/\1/p' configure) && \
	if autoconf --version 2>/dev/null | grep -q " $$version$$"; then \
		autoconf -o configure.new && { cmp -s configure.new configure || cp configure.new configure; }; \
		rm -rf configure.new autom4te.cache; \
	fi && touch configure

# ---- Checking -------------------------------------------------------------------------------------------------------
# make check T="unit mpi/allreduce" runs a part; scripts/run-tests says what else can be named.
check: all
ifneq ($(HAVE_CHECK),yes)
	@echo 'make check: configure found no Check, the test framework; install check and pkg-config, and configure again' >&2
	@exit 1
else
	$(Q)+$(MAKE) --no-print-directory tests
	$(Q)MPIRUN='$(MPIRUN)' $(srcdir)/scripts/run-tests --source $(srcdir) --build $(B) $(T)
endif

lint:
	$(Q)cd $(srcdir) && scripts/check-includes
	$(Q)cd $(srcdir) && scripts/check-orders
	$(Q)cd $(srcdir) && scripts/check-style
	$(Q)cd $(srcdir) && scripts/check-names
	$(Q)if [ -e $(B)/libtiara.so ]; then $(srcdir)/scripts/check-symbols $(srcdir) $(B) && $(srcdir)/scripts/check-circles $(srcdir) $(B); \
		else echo 'check-symbols, check-circles: not checked, as nothing is built yet'; fi

# ---- Installing -----------------------------------------------------------------------------------------------------
D = $(DESTDIR)
install: all
	$(Q)mkdir -p $(D)$(bindir) $(D)$(libdir)/pkgconfig $(D)$(includedir) $(addprefix $(D)$(mandir)/man,1 3 7)
	$(Q)install -m 755 $(LIB_SO) $(D)$(libdir)
	$(Q)cp -P $(B)/libtiara.so.$(SOVERSION) $(B)/libtiara.so $(D)$(libdir)
	$(Q)install -m 644 $(LIB_A) $(D)$(libdir)
	$(Q)install -m 644 $(B)/tiara.pc $(D)$(libdir)/pkgconfig
	$(Q)install -m 644 $(srcdir)/include/tiara.h $(srcdir)/include/tiara_cuda.h $(D)$(includedir)
	$(Q)if [ $(HAVE_CUDA) = yes ]; then install -m 755 $(CUDA_SO) $(D)$(libdir) && \
		cp -P $(B)/libtiara-cuda.so.$(SOVERSION) $(B)/libtiara-cuda.so $(D)$(libdir); fi
	$(Q)if [ $(HAVE_PMPI) = yes ]; then install -m 755 $(SHIM_SO) $(ENGINE_SO) $(D)$(libdir) && \
		cp -P $(foreach l,libtiara-pmpi libtiara-pmpi-engine,$(B)/$(l).so.$(SOVERSION) $(B)/$(l).so) $(D)$(libdir) && \
		sed 's,^libdir=.*,libdir=$(libdir),' $(srcdir)/scripts/tiara-run >$(D)$(bindir)/tiara-run && chmod 755 $(D)$(bindir)/tiara-run; fi
	$(Q)for p in $(PROGRAM_BIN); do install -m 755 $$p $(D)$(bindir); done
	$(Q)for m in $(MAN); do install -m 644 $$m $(D)$(mandir)/man$${m##*.}; done
	@echo "Tiara $(VERSION) is installed in $(D)$(prefix)"

uninstall:
	$(Q)rm -f $(D)$(libdir)/libtiara.a
	$(Q)rm -f $(foreach l,libtiara libtiara-cuda libtiara-pmpi libtiara-pmpi-engine,$(D)$(libdir)/$(l).so $(addprefix $(D)$(libdir)/$(l).so.,$(SOVERSION) $(VERSION)))
	$(Q)rm -f $(D)$(libdir)/pkgconfig/tiara.pc $(addprefix $(D)$(includedir)/,tiara.h tiara_cuda.h) $(addprefix $(D)$(bindir)/,$(PROGRAMS) tiara-run)
	$(Q)for m in $(MAN); do rm -f $(D)$(mandir)/man$${m##*.}/$${m##*/}; done

# ---- Distributing ---------------------------------------------------------------------------------------------------
DISTFILES = $(notdir $(wildcard $(addprefix $(srcdir)/,configure configure.ac Makefile config.mk.in config.h.in \
	tiara.pc.in .clang-format .ci LICENSE *.md include lib kernels bench doc scripts test)))
dist:
	$(Q)mkdir -p $(B)
	$(Q)tar --sort=name --owner=0 --group=0 --transform 's,^,$(DIST)/,' -C $(srcdir) -czf $(B)/$(DIST).tar.gz $(DISTFILES)
	@echo $(B)/$(DIST).tar.gz

# One folder with all that scripts/gpu-check needs, for a machine with a GPU and nothing else.
bundle: all tests
	$(Q)MPIRUN='$(MPIRUN)' $(srcdir)/scripts/bundle --build $(B)

# From the tarball, read-only and out of tree: configure, build, check, install, uninstall, and nothing is left.
distcheck: dist
	$(Q)rm -rf $(B)/distcheck && mkdir -p $(B)/distcheck/b
	$(Q)tar -xzf $(B)/$(DIST).tar.gz -C $(B)/distcheck && chmod -R a-w $(B)/distcheck/$(DIST)
	$(Q)cd $(B)/distcheck/b && ../$(DIST)/configure CC='$(CC)' CUDA_ARCHS= && $(MAKE) && $(MAKE) check T='$(T)' && \
		$(MAKE) install DESTDIR=$$PWD/root && $(MAKE) uninstall DESTDIR=$$PWD/root
	$(Q)left=$$(find $(B)/distcheck/b/root ! -type d); [ -z "$$left" ] || { echo "uninstall left $$left" >&2; exit 1; }
	$(Q)chmod -R u+w $(B)/distcheck && rm -rf $(B)/distcheck
	@echo '$(DIST).tar.gz is complete'

# ---- Cleaning -------------------------------------------------------------------------------------------------------
clean:
	$(Q)rm -rf $(addprefix $(B)/,lib kernels bench test libtiara.* libtiara-cuda.* libtiara-pmpi* tiara-* distcheck)

distclean:
	$(Q)rm -rf $(B) config.log config.status autom4te.cache
	$(Q)[ $(srcdir) = . ] || rm -f Makefile

help:
	@echo 'all        the library, static and shared, and the programs (default)'
	@echo 'tests      the test programs, built and not run'
	@echo 'check      build and run the tests; T="unit mpi/allreduce" runs a part'
	@echo 'install    into $$(DESTDIR)$$(prefix); uninstall takes the same files away'
	@echo 'lint       the rules that a script can check'
	@echo 'dist       build/$(DIST).tar.gz; distcheck builds, checks and installs from it'
	@echo 'bundle     build/tiara-bundle: library, tests and MPI in one folder, for scripts/gpu-check elsewhere'
	@echo 'clean      what make built; distclean also what configure wrote'
	@echo 'V=1        show the commands'
