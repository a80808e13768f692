# SPDX-License-Identifier: MIT OR Apache-2.0
# Every target says what it does and how long it may take; `make` alone lists them.

SHELL := /bin/bash
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
export PATH := $(HOME)/.cargo/bin:$(PATH)
# The programs that need root say so; sudo is used where we are not root.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
# `make install STRIP=` installs programs and libraries with their symbols: 100 MB instead of 20.
STRIP ?= -s
# Arguments for ringtap-lab bench, for instance BENCH=--quick.
BENCH ?=
# How long `make soak` sends, in seconds.
DURATION ?= 600
# Seconds of each case of `make chaos`; if empty, 3 for an attack and 60 for a mix of all.
ATTACK ?=
# How long `make fuzz` runs each target.
SECONDS ?= 30
BINARY := $(or $(CARGO_TARGET_DIR),target)/release/ringtap

# A reader with the crate netring, which the lab compares with.
NETRING := cargo build --locked --release --manifest-path lab/ringtap_lab/contenders/netring/Cargo.toml --target-dir $(or $(CARGO_TARGET_DIR),target)/lab/netring

.DEFAULT_GOAL := help
.PHONY: help build daq python sample run demo-vm test check bench bench-vm figures fuzz lab soak kills chaos flaps test-fleet recipes-test readme install uninstall deb rpm tarball package-test clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

build: ## install what is missing, build the release binary and the libraries (about 4 minutes when cold)
	@scripts/prepare run
	@echo "build: the release binary, $(BINARY), and the libraries: about 4 minutes when cold, seconds otherwise"
	@cargo build --locked --release -p ringtap-cli -p ringtap-c -p ringtap-pcap -p ringtap-pfring
	@scripts/library names $(dir $(BINARY))libringtap_pcap.so $(dir $(BINARY))library/pcap

# Where libringtap.so is installed for the DAQ module, which finds it there.
DAQ_PREFIX := $(abspath $(dir $(BINARY)))/library/daq

daq: ## build daq_ringtap.so, Snort's module, for the installed LibDAQ 3 (2 minutes when cold)
	@daq/build --check
	@echo "daq: the C library, 2 minutes when cold, and the module, seconds"
	@cargo build --locked --release -p ringtap-c
	@scripts/library install $(dir $(BINARY)) $(DAQ_PREFIX) $(DAQ_PREFIX)/lib
	@PKG_CONFIG_PATH=$(DAQ_PREFIX)/lib/pkgconfig:$(PKG_CONFIG_PATH) daq/build $(abspath $(dir $(BINARY)))/daq

python: ## build the Python package, target/wheels/ringtap-*.whl (3 minutes when cold)
	@scripts/prepare python
	@scripts/python-package build

sample: build ## build, write a small capture file to try the reading verbs on
	@mkdir -p examples
	@$(BINARY) record -q -i 'sim:max?burst=1600&flows=16' -w examples/first.pcapng
	@echo "sample: now try $(BINARY) count -r examples/first.pcapng"

run: build ## build, then show a capture in a private network (at most 20 seconds)
	@echo "run: ringtap demo, at most 20 seconds"
	@$(BINARY) demo

# Where scripts/prepare downloads a kernel for guests; sudo has another HOME.
GUEST_KERNEL := RINGTAP_GUEST_KERNEL=$(or $(RINGTAP_GUEST_KERNEL),$(HOME)/.cache/ringtap/guest-kernel)

demo-vm: build ## two virtual machines read one capture of the host, each its share (at most 2 minutes, needs root)
	@scripts/prepare vm
	@$(SUDO) env $(GUEST_KERNEL) scripts/checks demo_vm --ringtap $(BINARY)

test: ## all tests of all tiers that this machine can run (about 50 minutes when cold)
	@echo "test: all tiers; about 50 minutes on 2 cores when cold, 35 otherwise"
	@scripts/prepare test
	@scripts/test all

check: ## format, lints, layout, the lab, unit tests (less than 3 minutes when warm)
	@echo "check: format, lints, layout, the lab, unit tests; less than 3 minutes when warm"
	@scripts/prepare check
	@scripts/test check

bench: ## compare with other programs, write bench/results/ (about an hour, needs root)
	@echo "bench: all programs by turns in a private network, five repetitions of most; about an hour"
	@scripts/prepare bench
	@cargo build --locked --release --workspace --bin ringtap --examples
	@cargo build --locked --release -p ringtap-pcap
	@$(NETRING)
	@scripts/python-package bench || echo "bench: pip cannot install what Python is compared with: its rows will say so"
	@$(SUDO) scripts/lab bench --target $(or $(CARGO_TARGET_DIR),target) $(BENCH)

bench-vm: build ## capture in virtual machines beside virtio-net, writes bench/results/vm-latest* (a quarter of an hour, needs root)
	@scripts/prepare vm
	@echo "bench-vm: virtual machines in a private network; about a quarter of an hour"
	@$(SUDO) env $(GUEST_KERNEL) scripts/lab bench --only vm-rates,vm-line,vm-costs --target $(or $(CARGO_TARGET_DIR),target) $(BENCH)

# Battery of `make lab`; scripts/lab list shows all.
BATTERY ?= quick

lab: build ## a battery of the lab (BATTERY=quick: about a minute, needs root), into target/lab/records/
	@scripts/prepare bench
	@echo "lab: the battery $(BATTERY) in private networks; quick takes about a minute"
	@$(SUDO) scripts/lab run $(BATTERY)

figures: build ## figures of the papers, measured or in virtual time: pages in docs/figures/ (about 25 minutes, needs root)
	@scripts/prepare figures
	@$(NETRING)
	@echo "figures: about 25 minutes in private networks; results of virtual machines are those of make bench-vm"
	@$(SUDO) scripts/lab figures --ringtap $(BINARY)

fuzz: ## every fuzz target for SECONDS=30 each; needs a nightly Rust and cargo-fuzz
	@scripts/fuzz $(SECONDS)

soak: build ## a long run at full rate: counters and memory (DURATION=600 seconds, needs root)
	@echo "soak: $(DURATION) seconds at full rate in a private network"
	@$(SUDO) scripts/lab run soak --seconds $(DURATION) --ringtap $(BINARY)

kills: build ## kill more than a hundred readers of a hub at full rate: what do the others lose? (a minute, needs root)
	@echo "kills: readers are killed in a private network, about a minute"
	@$(SUDO) scripts/lab run kills --ringtap $(BINARY)

chaos: build ## attacks of an ordinary user on a hub: what do honest readers lose? (about 6 minutes, needs root)
	@echo "chaos: each attack and a mix of all, in private networks; about 6 minutes"
	@$(SUDO) scripts/lab run checks/batteries/chaos.toml --contenders checks/contenders $(if $(ATTACK),--seconds $(ATTACK)) --ringtap $(BINARY)

flaps: build ## 50 outages of the interface under each source, a hub, senders, bridges and tcpdump (about 9 minutes, needs root)
	@echo "flaps: 50 outages for each, in private networks: a battery of about 5 minutes, then tests of about 4"
	@$(SUDO) scripts/lab run flaps --ringtap $(BINARY)
	@cargo build -q -p ringtap-cli -p ringtap-pcap
	@RINGTAP_FLAPS=50 cargo test -q -p ringtap-cli --test links
	@RINGTAP_FLAPS=50 cargo test -q -p ringtap-pcap --test libpcap outlives

test-fleet: build ## three probes, a Kafka broker and a Spark job (about 2 minutes, 400 MB once, needs root)
	@scripts/prepare test
	@$(if $(SUDO),sudo -E) scripts/fleet $(BINARY)

recipes-test: build ## the recipes with Suricata, Podman, Docker and Prometheus, as far as they are installed (1 minute, needs root)
	@echo "recipes-test: programs in a private network; about a minute"
	@$(SUDO) scripts/checks recipes --ringtap $(BINARY)

readme: build ## put the latest benchmark, and a new picture of top and why, into README.md (half a minute, needs root)
	@scripts/prepare readme
	@scripts/lab bench --readme
	@$(SUDO) scripts/checks picture --ringtap $(BINARY)

$(BINARY):
	@$(MAKE) --no-print-directory build

install: $(BINARY) ## copy program, libraries, man pages and completions to $(DESTDIR)$(PREFIX) (build first with make build)
	@echo "install: $(BINARY) to $(DESTDIR)$(PREFIX)/bin/ringtap"
	@install -D $(STRIP) -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/ringtap
	@echo "install: libringtap.so in $(DESTDIR)$(LIBDIR); ringtap.h, and libpcap.so.1 and libpfring.so.8 in lib/ringtap, below $(DESTDIR)$(PREFIX)"
	@STRIP=$(STRIP) scripts/library install $(dir $(BINARY)) $(PREFIX) $(LIBDIR) $(DESTDIR)
	@STRIP=$(STRIP) scripts/library install-names $(dir $(BINARY)) $(PREFIX) $(DESTDIR)
	@echo "install: sources of the DAQ module in $(DESTDIR)$(PREFIX)/share/ringtap/daq"
	@install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/ringtap/daq daq/*.c daq/*.h
	@install -m 755 daq/build $(DESTDIR)$(PREFIX)/share/ringtap/daq/build
	@echo "install: man pages and completions below $(DESTDIR)$(PREFIX)/share"
	@scripts/manual install $(BINARY) $(DESTDIR)$(PREFIX)/share
	@echo "install: now run ldconfig, so that programs find libringtap.so.0"

uninstall: ## remove what was installed
	rm -f $(DESTDIR)$(PREFIX)/bin/ringtap
	scripts/library uninstall $(PREFIX) $(LIBDIR) $(DESTDIR)
	rm -rf $(DESTDIR)$(PREFIX)/share/ringtap/daq
	scripts/manual uninstall $(DESTDIR)$(PREFIX)/share

deb: ## build packages of Debian, target/package/ringtap_*.deb (about 6 minutes when cold)
	@echo "deb: a release build, man pages and packages in target/package: about 6 minutes when cold"
	@scripts/package deb

rpm: ## build a package for Fedora and others, target/package/ringtap-*.rpm (about 6 minutes when cold)
	@echo "rpm: a release build, man pages and a package in target/package: about 6 minutes when cold"
	@scripts/package rpm

tarball: ## build target/package/ringtap-*.tar.xz, whose program needs no library of the system (10 minutes when cold)
	@echo "tarball: a release build, and a static one: about 10 minutes when cold"
	@scripts/package tarball

package-test: deb rpm tarball ## install, use, upgrade and purge the packages in a clean Debian with systemd (5 minutes, needs root)
	@echo "package-test: a Debian of its own below a temporary folder, 250 MB; about 5 minutes"
	@$(SUDO) scripts/package test

clean: ## remove everything that was built
	cargo clean
