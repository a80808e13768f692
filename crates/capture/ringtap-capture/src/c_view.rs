// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares structs of the programs, by the compiled object's type information, with their Rust view.

use std::collections::BTreeMap;
use std::path::Path;

use libbpf_rs::btf::types::{MemberAttr, Struct};
use libbpf_rs::{Btf, HasSize};

/// Size and offsets of the members of a struct in `OUT_DIR/OBJECT.bpf.o`.
pub(crate) fn c_struct(object: &str, name: &str) -> (usize, BTreeMap<String, usize>) {
    let path = Path::new(env!("OUT_DIR")).join(format!("{object}.bpf.o"));
    let types = Btf::from_path(path).unwrap();
    let found: Struct<'_> = types.type_by_name(name).unwrap();
    let members = found.iter().map(|member| {
        let MemberAttr::Normal { offset } = member.attr else {
            panic!("{name} has no bit fields")
        };
        let place = usize::try_from(offset / 8).unwrap();
        (member.name.unwrap().to_str().unwrap().to_owned(), place)
    });
    (found.size(), members.collect())
}

/// Fails unless the struct has this size, and these members at these offsets.
pub(crate) fn same(object: &str, name: &str, size: usize, members: &[(&str, usize)]) {
    let (c_size, c_members) = c_struct(object, name);
    assert_eq!(c_size, size, "size of {name}");
    for (member, offset) in members {
        assert_eq!(c_members.get(*member), Some(offset), "{name}.{member}");
    }
}

/// Names and offsets of fields, for [`same`].
macro_rules! places {
    ($type:ty: $($field:ident),+) => {
        [$((stringify!($field), std::mem::offset_of!($type, $field))),+]
    };
}
pub(crate) use places;
