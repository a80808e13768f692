// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ringtap's waist: format, chunks, queues, delivery and ledger. No I/O, no system calls.
