# Tiara's only makefile: checked in, not generated, not recursive.
#
#   make              libtiara.so, libtiara.a, the programs and their tests' prerequisites, into build/
#   make help         all targets
#
# Settings come from build/config.mk, which ./configure writes; `make` runs configure when it has not been run. A word on
# the command line wins: make CFLAGS=-O3. Out of tree, configure leaves a two-line Makefile that sets srcdir and
# includes this one. A new source file needs no line here: sources are found by name, modules by the list below.

srcdir ?= .
B := build

# The layers of lib/, in the order in which they may include each other (scripts/check-includes).
MODULES := base topo plan algo tune mem redop xport exec core
# test/<kind>/*.c, each one program, and test/<kind>/*.sh; in the order in which they run.
TEST_KINDS := unit plan conform ranks mpi fault vcluster cli
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
	-I$(srcdir)/lib -I$(srcdir)/include
COMPILE = $(CC) $(BASE_FLAGS) $(EXTRA_FLAGS) $(CPPFLAGS) $(MPI_CFLAGS) $(CFLAGS) $(SANITIZE_FLAGS) -MMD -MP
LINK = $(CC) $(CFLAGS) $(SANITIZE_FLAGS) -pthread $(LDFLAGS)
LINK_LIBS = $(HWLOC_LIBS) $(MPI_LIBS) $(LIBS) -lm

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

# A program is bench/<name>.c; it takes what it needs of bench/bench_*.c.
PROGRAM_SRC := $(wildcard $(PROGRAMS:%=$(srcdir)/bench/%.c))
PROGRAM_OBJ := $(call objects,$(PROGRAM_SRC))
PROGRAM_BIN := $(PROGRAM_OBJ:$(B)/bench/%.o=$(B)/%)
BENCH_OBJ := $(call objects,$(sort $(wildcard $(srcdir)/bench/bench_*.c)))
BENCH_A := $(B)/bench/libbench.a

HARNESS_OBJ := $(call objects,$(sort $(wildcard $(srcdir)/test/harness/*.c)))
HARNESS_A := $(B)/test/libharness.a
TEST_OBJ := $(call objects,$(sort $(wildcard $(TEST_KINDS:%=$(srcdir)/test/%/*.c))))
TEST_BIN := $(TEST_OBJ:%.o=%)

MAN := $(sort $(wildcard $(srcdir)/doc/*.1 $(srcdir)/doc/*.3 $(srcdir)/doc/*.7))

.PHONY: all programs tests check install uninstall dist distcheck lint clean distclean help
.DELETE_ON_ERROR:
.SECONDARY:

all: $(B)/libtiara.so $(LIB_A) $(PROGRAM_BIN)

# ---- Building -------------------------------------------------------------------------------------------------------
# Kernels for one instruction set each; redop calls them only where the machine has it.
$(B)/lib/redop/%_avx2.o: EXTRA_FLAGS := -mavx2 -mfma -mf16c
$(B)/lib/redop/%_avx512.o: EXTRA_FLAGS := -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl
$(B)/lib/topo/%.o: EXTRA_FLAGS := $(HWLOC_CFLAGS)
# Tests reach everything: hidden symbols through the archive, and each other's headers from the top of the tree.
$(B)/test/%.o: EXTRA_FLAGS := -I$(srcdir) -I$(srcdir)/test/harness $(CHECK_CFLAGS)

# The compiler's command line lives in these files: a new configuration rebuilds everything.
$(B)/%.o: $(srcdir)/%.c $(B)/config.mk $(B)/config.h
	$(call say,CC    $*.c)
	$(Q)mkdir -p $(@D)
	$(Q)$(COMPILE) -c -o $@ $<

# One set of objects for both: the difference would be one -fPIC, and a second build.
$(LIB_A): $(LIB_OBJ)
$(BENCH_A): $(BENCH_OBJ)
$(HARNESS_A): $(HARNESS_OBJ)
$(LIB_A) $(BENCH_A) $(HARNESS_A):
	$(call say,AR    $(@:$(B)/%=%))
	$(Q)mkdir -p $(@D) && rm -f $@ && $(AR) cr $@ $^ && $(RANLIB) $@

$(LIB_SO): $(LIB_OBJ) $(srcdir)/lib/libtiara.map
	$(call say,LINK  $(@:$(B)/%=%))
	$(Q)$(LINK) -shared -Wl,-soname,libtiara.so.$(SOVERSION) -Wl,--version-script=$(srcdir)/lib/libtiara.map \
		-o $@ $(LIB_OBJ) $(LINK_LIBS)
$(B)/libtiara.so: $(LIB_SO)
	$(Q)ln -sf $(<F) $(B)/libtiara.so.$(SOVERSION) && ln -sf libtiara.so.$(SOVERSION) $@

# Programs and tests hold the library itself: they run from the build tree without an rpath, and installed without ldconfig.
$(B)/tiara-%: $(B)/bench/tiara-%.o $(BENCH_A) $(LIB_A)
	$(call say,LINK  $(@F))
	$(Q)$(LINK) -o $@ $^ $(LINK_LIBS)

programs: $(PROGRAM_BIN)
tests: $(TEST_BIN)
$(TEST_BIN): %: %.o $(HARNESS_A) $(LIB_A)
	$(call say,LINK  $(@:$(B)/%=%))
	$(Q)$(LINK) -o $@ $< $(HARNESS_A) $(LIB_A) $(CHECK_LIBS) $(LINK_LIBS)

-include $(patsubst %.o,%.d,$(LIB_OBJ) $(PROGRAM_OBJ) $(BENCH_OBJ) $(HARNESS_OBJ) $(TEST_OBJ))

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
	$(Q)if [ -e $(B)/libtiara.so ]; then $(srcdir)/scripts/check-symbols $(srcdir) $(B); \
		else echo 'check-symbols: not checked, as nothing is built yet'; fi

# ---- Installing -----------------------------------------------------------------------------------------------------
D = $(DESTDIR)
install: all
	$(Q)mkdir -p $(D)$(bindir) $(D)$(libdir)/pkgconfig $(D)$(includedir) $(addprefix $(D)$(mandir)/man,1 3 7)
	$(Q)install -m 755 $(LIB_SO) $(D)$(libdir)
	$(Q)cp -P $(B)/libtiara.so.$(SOVERSION) $(B)/libtiara.so $(D)$(libdir)
	$(Q)install -m 644 $(LIB_A) $(D)$(libdir)
	$(Q)install -m 644 $(B)/tiara.pc $(D)$(libdir)/pkgconfig
	$(Q)install -m 644 $(srcdir)/include/tiara.h $(D)$(includedir)
	$(Q)for p in $(PROGRAM_BIN); do install -m 755 $$p $(D)$(bindir); done
	$(Q)for m in $(MAN); do install -m 644 $$m $(D)$(mandir)/man$${m##*.}; done
	@echo "Tiara $(VERSION) is installed in $(D)$(prefix)"

uninstall:
	$(Q)rm -f $(D)$(libdir)/libtiara.a $(D)$(libdir)/libtiara.so $(addprefix $(D)$(libdir)/libtiara.so.,$(SOVERSION) $(VERSION))
	$(Q)rm -f $(D)$(libdir)/pkgconfig/tiara.pc $(D)$(includedir)/tiara.h $(addprefix $(D)$(bindir)/,$(PROGRAMS))
	$(Q)for m in $(MAN); do rm -f $(D)$(mandir)/man$${m##*.}/$${m##*/}; done

# ---- Distributing ---------------------------------------------------------------------------------------------------
DISTFILES = $(notdir $(wildcard $(addprefix $(srcdir)/,configure configure.ac Makefile config.mk.in config.h.in \
	tiara.pc.in .clang-format .ci LICENSE *.md include lib kernels bench doc scripts test)))
dist:
	$(Q)mkdir -p $(B)
	$(Q)tar --sort=name --owner=0 --group=0 --transform 's,^,$(DIST)/,' -C $(srcdir) -czf $(B)/$(DIST).tar.gz $(DISTFILES)
	@echo $(B)/$(DIST).tar.gz

# From the tarball, read-only and out of tree: configure, build, check, install, uninstall, and nothing is left.
distcheck: dist
	$(Q)rm -rf $(B)/distcheck && mkdir -p $(B)/distcheck/b
	$(Q)tar -xzf $(B)/$(DIST).tar.gz -C $(B)/distcheck && chmod -R a-w $(B)/distcheck/$(DIST)
	$(Q)cd $(B)/distcheck/b && ../$(DIST)/configure CC='$(CC)' && $(MAKE) && $(MAKE) check T='$(T)' && \
		$(MAKE) install DESTDIR=$$PWD/root && $(MAKE) uninstall DESTDIR=$$PWD/root
	$(Q)left=$$(find $(B)/distcheck/b/root ! -type d); [ -z "$$left" ] || { echo "uninstall left $$left" >&2; exit 1; }
	$(Q)chmod -R u+w $(B)/distcheck && rm -rf $(B)/distcheck
	@echo '$(DIST).tar.gz is complete'

# ---- Cleaning -------------------------------------------------------------------------------------------------------
clean:
	$(Q)rm -rf $(addprefix $(B)/,lib bench test libtiara.* tiara-* distcheck)

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
	@echo 'clean      what make built; distclean also what configure wrote'
	@echo 'V=1        show the commands'
