// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rule_rates SOCKET GROUP READERS RULES`: rules for flows that readers of a hub set in a second, together; prints JSON.

use std::env;
use std::error::Error;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use ringtap_client::{Connection, ReaderRules, SubscriptionRequest};
use ringtap_filter::flow::{FlowAction, FlowId, FlowRule};

const UDP: u8 = 17;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let usage = "usage: rule_rates SOCKET GROUP READERS RULES";
    let mut arguments = env::args().skip(1);
    let mut next = || arguments.next().ok_or(usage);
    let (socket, group) = (next()?, next()?);
    let (readers, rules): (u32, u32) = (next()?.parse()?, next()?.parse()?);
    let each = rules / readers.max(1);
    let (begin, end) = (
        Barrier::new(readers as usize + 1),
        Barrier::new(readers as usize + 1),
    );
    let set = |number: u32| -> Result<(), Failure> {
        let request = SubscriptionRequest::new(&*group, "rule_rates");
        let attached = Connection::attach(Path::new(&socket), &request);
        let rules = (0..each).map(|at| rule(number * each + at));
        let rules: Result<Vec<_>, _> = rules.collect();
        begin.wait();
        let done = attached
            .map_err(Failure::from)
            .and_then(|(subscription, connection)| {
                ReaderRules::new(&*connection).set(&rules?)?;
                Ok(subscription)
            });
        end.wait();
        done.map(drop)
    };
    let set = &set;
    let elapsed = thread::scope(|scope| -> Result<_, Failure> {
        let threads: Vec<_> = (0..readers)
            .map(|number| scope.spawn(move || set(number)))
            .collect();
        begin.wait();
        let start = Instant::now();
        end.wait();
        let elapsed = start.elapsed();
        for thread in threads {
            thread.join().map_err(|_| "a reader panicked")??;
        }
        Ok(elapsed)
    })?;
    let rate = f64::from(each * readers) / elapsed.as_secs_f64();
    println!(
        "{{\"readers\":{readers},\"rules\":{},\"rules_per_s\":{rate:.0}}}",
        each * readers
    );
    Ok(())
}

fn rule(number: u32) -> Result<FlowRule, Failure> {
    let address = |last: u32| IpAddr::from((0x0a00_0000 | last).to_be_bytes());
    let low = (address(number >> 14), 10_000);
    let high = (address(1 << 23), 20_000 + u16::try_from(number & 0x3fff)?);
    Ok(FlowRule {
        flow: FlowId::new(low, high, UDP, [0; 2])?,
        action: FlowAction::Ignore,
        lasts_ns: None,
    })
}
