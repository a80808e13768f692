// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wake-ups: in every order, a sleeper either saw the news or gets a signal.

use loom::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
    fence,
};
use loom::sync::{Arc, Notify};
use loom::thread;
use ringtap_pool::AtomicU32;
use ringtap_pool::memory::Words;
use ringtap_pool::publish::{observe, publish};
use ringtap_pool::queue;
use ringtap_pool::wake::{Level, WakeFlag, WakeWord};

fn word_wakes(armed: Level, happened: Level) {
    loom::model(move || {
        let word = WakeWord::on_heap();
        let state = Arc::new(AtomicU32::new(0));
        let writing = thread::spawn({
            let (word, state) = (word.clone(), Arc::clone(&state));
            move || {
                publish(&state, 1);
                word.take(happened)
            }
        });
        word.arm(armed);
        let seen = observe(&state).published == 1;
        assert!(writing.join().unwrap() || seen, "a wake-up is lost");
    });
}

#[test]
fn who_waits_for_packets_is_woken_by_a_packet() {
    word_wakes(Level::Packet, Level::Packet);
}

#[test]
fn who_waits_for_packets_is_woken_by_a_chunk() {
    word_wakes(Level::Packet, Level::Chunk);
}

#[test]
fn who_waits_for_chunks_is_woken_by_a_chunk() {
    word_wakes(Level::Chunk, Level::Chunk);
}

#[test]
fn who_waits_for_chunks_is_left_alone_by_packets() {
    loom::model(|| {
        let word = WakeWord::on_heap();
        word.arm(Level::Chunk);
        assert!(!word.take(Level::Packet));
        assert!(word.take(Level::Chunk));
        assert!(
            !word.take(Level::Chunk),
            "one signal for one announced sleep"
        );
    });
}

/// The driver waits for chunks and a reader for packets in one word: a packet wakes both.
#[test]
fn of_two_sleepers_in_one_word_none_is_forgotten() {
    loom::model(|| {
        let word = WakeWord::on_heap();
        let state = Arc::new(AtomicU32::new(0));
        let sleeper = |level| {
            let (word, state) = (word.clone(), Arc::clone(&state));
            move || {
                word.arm(level);
                observe(&state).published == 1
            }
        };
        let reader = thread::spawn(sleeper(Level::Packet));
        let driver = thread::spawn(sleeper(Level::Chunk));
        publish(&state, 1);
        let woken = word.take(Level::Packet);
        assert!(reader.join().unwrap() || woken, "the reader is forgotten");
        driver.join().unwrap();
    });
}

#[test]
fn who_raised_the_flag_sees_the_news_or_is_signalled() {
    loom::model(|| {
        let flag = Arc::new(WakeFlag::default());
        let state = Arc::new(AtomicU32::new(0));
        let telling = thread::spawn({
            let (flag, state) = (Arc::clone(&flag), Arc::clone(&state));
            move || {
                publish(&state, 1);
                flag.take()
            }
        });
        flag.raise();
        let seen = observe(&state).published == 1;
        assert!(telling.join().unwrap() || seen, "a wake-up is lost");
    });
}

/// How the eBPF writer orders its publication before its look at the word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// `bpf/lane.h` on x86-64: two plain accesses, which the processor may exchange.
    Plain,
    /// A full fence between the two, as in writers in user space; and as on arm64, where the
    /// publication is an atomic exchange.
    Fence,
}

/// `rt_publish` and `rt_signal` of `bpf/lane.h`, for one packet; returns whether it signals.
fn publish_as_ebpf(state: &AtomicU32, word: &AtomicU32, order: Order) -> bool {
    publish(state, 1);
    if order == Order::Fence {
        fence(SeqCst);
    }
    if word.load(Relaxed) < Level::Packet as u32 {
        return false;
    }
    word.store(Level::Quiet as u32, Relaxed);
    true
}

/// A sleeper announces itself, looks, and looks again after its first sleep, which is longer than the
/// writer's run (decision 7).
fn sleeps_beside_the_ebpf_writer(order: Order, has_first_sleep: bool) {
    loom::model(move || {
        let words = Words::on_heap(vec![AtomicU32::new(Level::Quiet as u32)]);
        let state = Arc::new(AtomicU32::new(0));
        let writing = thread::spawn({
            let (words, state) = (words.clone(), Arc::clone(&state));
            move || publish_as_ebpf(&state, &words[0], order)
        });
        WakeWord::new(words).arm(Level::Packet);
        let seen = observe(&state).published == 1;
        let signalled = writing.join().unwrap();
        let seen_later = has_first_sleep && observe(&state).published == 1;
        assert!(seen || signalled || seen_later, "a wake-up is lost");
    });
}

#[test]
#[should_panic(expected = "a wake-up is lost")]
fn without_a_fence_a_packet_of_the_ebpf_writer_can_be_slept_over() {
    sleeps_beside_the_ebpf_writer(Order::Plain, false);
}

#[test]
fn the_first_sleep_ends_with_the_packet_of_the_ebpf_writer() {
    sleeps_beside_the_ebpf_writer(Order::Plain, true);
}

#[test]
fn with_a_fence_the_ebpf_writer_would_need_no_first_sleep() {
    sleeps_beside_the_ebpf_writer(Order::Fence, false);
}

/// State shared by a reader and the distributor's driver.
struct Chain {
    state: AtomicU32,
    word: WakeWord,
    watching: AtomicU32,
    asleep: WakeFlag,
    /// Number of packets that the reader took.
    read_to: AtomicU32,
    reader: Notify,
    driver: Notify,
    left: AtomicBool,
}

impl Chain {
    /// Like `Distributor::arm`.
    fn arm_driver(&self, woke: bool) {
        let level = |asleep| if asleep { Level::Packet } else { Level::Chunk };
        let first = level(woke || self.asleep.is_raised());
        self.watch(first);
        fence(SeqCst);
        if first == Level::Chunk && self.asleep.is_raised() {
            self.watch(Level::Packet);
        }
    }

    fn watch(&self, level: Level) {
        self.word.arm(level);
        self.watching.store(level as u32, Relaxed);
    }

    /// Like `Sleeper::arm`.
    fn arm_reader(&self) {
        self.asleep.raise();
        if self.watching.load(Relaxed) < Level::Packet as u32 {
            self.driver.notify();
        }
    }

    /// Like `Distributor::wake_sleepers`.
    fn wake_reader(&self) -> bool {
        fence(SeqCst);
        let has_news =
            |chain: &Self| chain.read_to.load(Relaxed) != observe(&chain.state).published;
        let woke = self.asleep.is_raised() && has_news(self) && self.asleep.take();
        if woke {
            self.reader.notify();
        }
        woke
    }

    /// Like the hub's thread: announces the sleep, then wakes readers that slept through packets.
    fn rest_driver(&self) {
        self.arm_driver(false);
        self.wake_reader();
    }
}

/// Writer, sleeping driver and sleeping reader: packets in an already delivered chunk reach the reader
/// through the driver, which wakes only readers with packets left. After a lost wake-up all would
/// sleep, which loom detects.
fn packets_wake_a_reader_through_the_driver(packets: u32, preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let chain = Arc::new(Chain {
            state: AtomicU32::new(0),
            word: WakeWord::on_heap(),
            watching: AtomicU32::new(0),
            asleep: WakeFlag::default(),
            read_to: AtomicU32::new(0),
            reader: Notify::new(),
            driver: Notify::new(),
            left: AtomicBool::new(false),
        });
        let reading = thread::spawn({
            let chain = Arc::clone(&chain);
            move || {
                let mut read = 0;
                while read < packets {
                    chain.arm_reader();
                    if observe(&chain.state).published == read {
                        chain.reader.wait();
                    }
                    chain.asleep.lower();
                    read = observe(&chain.state).published;
                    chain.read_to.store(read, Relaxed);
                }
                chain.left.store(true, SeqCst);
                chain.driver.notify();
            }
        });
        let driving = thread::spawn({
            let chain = Arc::clone(&chain);
            move || {
                chain.rest_driver();
                while !chain.left.load(SeqCst) {
                    chain.driver.wait();
                    chain.rest_driver();
                }
            }
        });
        for published in 1..=packets {
            publish(&chain.state, published);
            if chain.word.take(Level::Packet) {
                chain.driver.notify();
            }
        }
        reading.join().unwrap();
        driving.join().unwrap();
    });
}

#[test]
fn a_packet_wakes_a_reader_through_the_sleeping_driver() {
    packets_wake_a_reader_through_the_driver(1, 3);
}

#[test]
fn a_packet_that_comes_while_the_driver_is_awake_is_not_slept_over() {
    packets_wake_a_reader_through_the_driver(2, 2);
}

/// A reader sleeps while the distributor delivers: it finds the chunk or gets a signal.
#[test]
fn a_delivery_wakes_a_sleeping_reader() {
    loom::model(|| {
        let (mut deliveries, mut delivered) = queue::pair(2);
        let asleep = Arc::new(WakeFlag::default());
        let delivering = thread::spawn({
            let asleep = Arc::clone(&asleep);
            move || {
                deliveries.push(5).unwrap();
                asleep.take()
            }
        });
        asleep.raise();
        let seen = delivered.pop().unwrap().is_some();
        assert!(delivering.join().unwrap() || seen, "the delivery is missed");
    });
}

/// The driver waits for chunks; a reader returns two and checks the flag each time.
#[test]
fn returned_chunks_wake_a_driver_that_wants_them() {
    loom::model(|| {
        let (mut returns, mut returned) = queue::pair(2);
        let wants = Arc::new(WakeFlag::default());
        let driver = Arc::new(Notify::new());
        let reading = thread::spawn({
            let (wants, driver) = (Arc::clone(&wants), Arc::clone(&driver));
            move || {
                for chunk in 1..=2 {
                    returns.push(chunk).unwrap();
                    if wants.take() {
                        driver.notify();
                    }
                }
            }
        });
        let mut next = 1;
        while next <= 2 {
            wants.raise();
            match returned.pop().unwrap() {
                Some(chunk) => {
                    assert_eq!(chunk, next);
                    next += 1;
                }
                None => driver.wait(),
            }
        }
        reading.join().unwrap();
    });
}
