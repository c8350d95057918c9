//! Tests of whole commands, from the bytes of the CDB to the bytes of the answer. Expected bytes are written out from
//! the standards; none are made with the code under test.

mod attentions;
mod bad_input;
mod data_in;
mod identity;
mod lba_status;
mod linux_probe;
mod luns;
mod medium;
mod random;
mod supported;
mod unmap;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::*;

/// Name of the target in every test.
const TARGET: &str = "iqn.2026-11.io.holdfast:disk0";
/// NAA identifier of the units.
const NAA: u64 = 0x3123_4567_89ab_cdef;
/// LUN 0 in the LUN field.
const LUN_0: [u8; 8] = [0; 8];
/// The REPORT LUNS well known logical unit in the LUN field.
const WELL_KNOWN: [u8; 8] = [0xc1, 0x01, 0, 0, 0, 0, 0, 0];

/// 1 GiB of 512-byte blocks.
fn unit_512() -> LogicalUnit {
    LogicalUnit {
        naa: NAA,
        serial: "disk-1".to_owned(),
        name: "disk0".to_owned(),
        block_size: BlockSize::Bytes512,
        blocks: 1 << 21,
        read_only: false,
        thin: true,
        descriptor_sense: false,
        limits: Limits::default(),
    }
}

/// 1 GiB of 4,096-byte blocks.
fn unit_4096() -> LogicalUnit {
    LogicalUnit { block_size: BlockSize::Bytes4096, blocks: 1 << 18, ..unit_512() }
}

fn target(units: impl IntoIterator<Item = (u16, LogicalUnit)>) -> Target {
    let luns: BTreeMap<_, _> = units.into_iter().map(|(lun, unit)| (lun, Arc::new(unit))).collect();
    Target { name: TARGET.to_owned(), relative_port: 1, port_group: 1, luns }
}

/// An initiator with its nexus, which has seen the unit attentions of a new session already.
struct Host {
    nexus: Nexus,
    target: Target,
}

impl Host {
    fn new(units: impl IntoIterator<Item = (u16, LogicalUnit)>) -> Self {
        let target = target(units);
        let mut nexus = new_nexus();
        for lun in target.luns.keys() {
            assert_eq!(nexus.take(*lun), Some(UnitAttention::PowerOnResetOrBusDeviceReset));
        }
        Self { nexus, target }
    }

    fn with(unit: LogicalUnit) -> Self {
        Self::new([(0, unit)])
    }

    fn plan_at(&mut self, lun: [u8; 8], cdb: &[u8], expected_data_out_bytes: u64) -> Plan {
        prepare(&Request { lun, cdb, expected_data_out_bytes }, &mut self.nexus, &self.target)
    }

    fn plan(&mut self, cdb: &[u8]) -> Plan {
        self.plan_at(LUN_0, cdb, 0)
    }

    /// Runs a command that is answered at once.
    fn answer_at(&mut self, lun: [u8; 8], cdb: &[u8]) -> Response {
        match self.plan_at(lun, cdb, 0) {
            Plan::Respond(response) => response,
            other => panic!("{cdb:02x?}: {other:?}"),
        }
    }

    fn answer(&mut self, cdb: &[u8]) -> Response {
        self.answer_at(LUN_0, cdb)
    }

    /// Data of a command that ends with GOOD.
    fn data_at(&mut self, lun: [u8; 8], cdb: &[u8]) -> Vec<u8> {
        let response = self.answer_at(lun, cdb);
        assert_eq!((response.status, response.sense), (Status::Good, None), "{cdb:02x?}");
        response.data_in.to_vec()
    }

    fn data(&mut self, cdb: &[u8]) -> Vec<u8> {
        self.data_at(LUN_0, cdb)
    }

    /// Sense data of a command that ends with CHECK CONDITION.
    fn sense_at(&mut self, lun: [u8; 8], cdb: &[u8]) -> Sense {
        sense_of(self.plan_at(lun, cdb, 0))
    }

    fn sense(&mut self, cdb: &[u8]) -> Sense {
        self.sense_at(LUN_0, cdb)
    }

    /// The medium operation that a command comes to.
    fn io(&mut self, cdb: &[u8], expected_data_out_bytes: u64) -> Io {
        match self.plan_at(LUN_0, cdb, expected_data_out_bytes) {
            Plan::Io(io) => io,
            other => panic!("{cdb:02x?}: {other:?}"),
        }
    }
}

fn new_nexus() -> Nexus {
    Nexus::new("iqn.1993-08.org.debian:01:abc", [0x80, 0, 0, 0, 0, 1])
}

fn sense_of(plan: Plan) -> Sense {
    let Plan::Respond(response) = plan else { panic!("{plan:?}") };
    assert_eq!(response.status, Status::CheckCondition);
    assert!(response.data_in.is_empty());
    response.sense.expect("CHECK CONDITION comes with sense data")
}

/// Key, additional sense code and qualifier.
fn codes(sense: Sense) -> (u8, u8, u8) {
    (sense.key as u8, sense.additional.code(), sense.additional.qualifier())
}

/// Bytes from a string of hexadecimal digits with blanks.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn padded(mut bytes: Vec<u8>, len: usize) -> Vec<u8> {
    bytes.resize(len, 0);
    bytes
}
