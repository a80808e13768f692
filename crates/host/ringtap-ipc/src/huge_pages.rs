// SPDX-License-Identifier: MIT OR Apache-2.0
//! Huge pages for large tables, in which the processor finds an address faster.

use std::io;

use rustix::mm::{Advice, madvise};
use rustix::param::page_size;

/// Asks the kernel for huge pages behind the whole capacity of a vector, where no page is in use yet.
///
/// The kernel gives none where `/sys/kernel/mm/transparent_hugepage/enabled` says `never`.
///
/// # Errors
///
/// The system's: a kernel without huge pages.
pub fn advise_huge_pages<T>(vector: &Vec<T>) -> io::Result<()> {
    let start = vector.as_ptr().addr();
    let first = start.next_multiple_of(page_size());
    let end = start + vector.capacity() * size_of::<T>();
    let bytes = end.saturating_sub(first) / page_size() * page_size();
    if bytes == 0 {
        return Ok(());
    }
    let pages = vector.as_ptr().map_addr(|_| first).cast_mut();
    // SAFETY: whole pages inside the vector's memory, which the call leaves as they are.
    Ok(unsafe { madvise(pages.cast(), bytes, Advice::LinuxHugepage) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_vector_gets_huge_pages_where_the_kernel_has_them() {
        let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        if setting.is_ok_and(|setting| !setting.contains("[never]")) {
            let mut vector: Vec<u64> = Vec::with_capacity(8 << 20);
            advise_huge_pages(&vector).expect("madvise");
            vector.resize(8 << 20, 1);
            let maps = std::fs::read_to_string("/proc/self/smaps").expect("proc");
            let start = vector.as_ptr().addr();
            let holds = |line: &str| {
                let (range, _) = line.split_once(' ')?;
                let (from, to) = range.split_once('-')?;
                let number = |text| usize::from_str_radix(text, 16).ok();
                Some((number(from)?..number(to)?).contains(&start))
            };
            let own = maps.lines().skip_while(|line| holds(line) != Some(true));
            let mut lines = own.skip_while(|line| !line.starts_with("VmFlags:"));
            assert!(lines.next().is_some_and(|flags| flags.contains(" hg")));
        }
    }

    #[test]
    fn a_small_vector_stays_as_it_is() {
        advise_huge_pages::<u8>(&Vec::new()).expect("nothing to do");
        advise_huge_pages(&vec![7_u8; 100]).expect("nothing to do");
    }
}
