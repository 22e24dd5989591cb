# Targets install the programs that they need, and name them first: a Redis server, a MariaDB server, a C compiler, openssl;
# for `interop` a JDK, Maven, Python and Go.

CARGO ?= cargo
# The generations of Redisson to test against: the oldest, one of the first with the unlock latch and sharded pub/sub,
# the newest.
OLDEST = 3.14.0
LATCHED = 3.27.2
NEWEST = 4.7.0
REDISSON = $(OLDEST) $(LATCHED) $(NEWEST)

# Options for the JVM. On Java 17 no generation needs any.
JVM_OPTIONS =

.PHONY: help test test-all command demo bench interop servers differential topologies sim mutants nightly ci tools

help:
	@echo "make test        runs the tests of every change"
	@echo "make test-all    runs the tests of the library, also long ones, and the laws on each store"
	@echo "make command     tests the command redlatch, in cli/"
	@echo "make demo        shows in four acts what the locks prevent"
	@echo "make bench       measures the cost of a lock"
	@echo "make interop     tests against Redisson in a JVM and libraries of Python and Go"
	@echo "make servers     tests on Redis 6.2, 7.0 and 8.0, Valkey 8.1 and 9.1; QUICK=1 runs fewer tests"
	@echo "make differential  compares the in-process server with real ones, 35 seconds each, or SECONDS=n"
	@echo "make topologies  tests with Sentinel, Cluster, replicas and TLS"
	@echo "make sim         runs the client in a simulated world for a minute; SEED=n shows one run, SHRUNK=1 its shortest failing form"
	@echo "make mutants     changes source files, and lists the changes that no unit test notices (cargo-mutants)"
	@echo "make nightly     runs the long form of all tests above"
	@echo "make ci          checks everything that a release needs"

# The tests wait more than they work, so eight run on each core.
TEST_THREADS = $(shell expr 8 '*' "$$(getconf _NPROCESSORS_ONLN)")

# The library, its in-process server, and the test packages.
TESTED = $(foreach name,redlatch redlatch-server redlatch-model redlatch-shuttle redlatch-sim redlatch-server-checks redlatch-worlds,-p $(name))

test: tools
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$(TEST_THREADS)} $(CARGO) test --all-features $(TESTED)

# Only this package has ignored tests.
test-all: tools
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$(TEST_THREADS)} $(CARGO) test --all-features -p redlatch --lib --test it --test metrics -- --include-ignored

command: tools
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$(TEST_THREADS)} $(CARGO) test --package redlatch-cli

demo:
	@command -v $(CARGO) >/dev/null || { echo "Rust is missing, see https://rustup.rs" >&2; exit 1; }
	@CARGO="$(CARGO)" tests/demo

bench: tools
	tests/with-redis $(CARGO) bench --bench overhead
	$(CARGO) bench --features mysql --bench mysql

interop: tools
	@tests/install javac mvn python3 go
	@CARGO="$(CARGO)" JVM_OPTIONS="$(JVM_OPTIONS)" tests/interop/run $(REDISSON)

servers: tools
	@CARGO="$(CARGO)" RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$(TEST_THREADS)} tests/servers $(if $(QUICK),quick)

# Servers whose clock cannot be fixed, or that cannot be installed, are skipped with a note.
differential: tools
	@compared=0; for name in $${SERVERS:-6.2 7.0 8.0 valkey-8.1 valkey-9.1}; do \
		program=$$(tests/servers program $$name) || { echo "skipped: $$name" >&2; continue; }; \
		REDIS_SERVER=$$program SECONDS=$(or $(SECONDS),35) \
			$(CARGO) test --package redlatch-server-checks --test differential -- --nocapture || exit 1; \
		compared=$$((compared + 1)); \
	done; [ $$compared -gt 0 ]

topologies: tools
	@CARGO="$(CARGO)" tests/topologies/run

# In a profile of its own, because faster code runs more seeds; traces are compared with the dev profile's.
sim:
	@command -v $(CARGO) >/dev/null || { echo "Rust is missing, see https://rustup.rs" >&2; exit 1; }
	@$(if $(SEED),,$(CARGO) build --quiet --package redlatch-sim --bin sim)
	@$(if $(SEED),,OTHER=$(or $(CARGO_TARGET_DIR),target)/debug/sim) SECONDS=$(if $(LONG),3600,45) \
		$(CARGO) run --quiet --profile sim --package redlatch-sim --bin sim

# By default the files that decide about holds, waits and votes, and the rows of the kinds.
FILES ?= src/engine/hold/*.rs src/engine/wait_loop/*.rs src/stores/quorum/*.rs src/stores/redis/kinds/*/mod.rs
mutants: tools
	@command -v cargo-mutants >/dev/null || { echo "cargo-mutants is missing: cargo install --locked cargo-mutants" >&2; exit 1; }
	$(CARGO) mutants --package redlatch --all-features $(foreach file,$(FILES),--file '$(file)') --output target -- --lib

nightly: tools
	REDLATCH_LONG=1 $(CARGO) test --all-features $(TESTED)
	$(MAKE) test-all
	$(MAKE) interop
	REDLATCH_LONG=1 $(MAKE) topologies
	$(MAKE) sim LONG=1 FIRST=$$(date +%s)
	@if command -v cargo-mutants >/dev/null; then $(MAKE) mutants; else echo "skipped: cargo-mutants is missing" >&2; fi
	$(MAKE) differential FIRST=$$(date +%s)
	$(MAKE) servers
	CARGO="$(CARGO)" tests/servers topologies

ci:
	.ci/run

tools:
	@command -v $(CARGO) >/dev/null || { echo "Rust is missing, see https://rustup.rs" >&2; exit 1; }
	@tests/install redis-server mariadbd cc openssl
