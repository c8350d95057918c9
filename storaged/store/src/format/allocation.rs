//! One page of the allocation bitmap: which of 4096 slots are referenced at the checkpoint.
//!
//! ```text
//!   0  version   u8, 1
//!   1  reserved  3 bytes
//!   4  bits      512 bytes; slot n of the page is bit n % 8 of byte n / 8
//! 516  crc       u32 of key and value
//! ```

use crate::format::codec::{seal, unseal};
use crate::format::error::FormatError;
use crate::format::keys;
use crate::ids::Slot;

/// Slots of one page.
pub const SLOTS_PER_PAGE: u32 = 4096;

const WHAT: &str = "an allocation page";
const VERSION: u8 = 1;
const WORDS: usize = SLOTS_PER_PAGE as usize / 64;

/// Which of the slots `number * 4096 ..` are referenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationPage {
    /// Which page: slot / 4096.
    pub number: u32,
    /// Bit n % 64 of word n / 64 is slot n of the page; 1 is referenced.
    pub words: Box<[u64; WORDS]>,
}

impl AllocationPage {
    /// A page without a referenced slot.
    pub fn empty(number: u32) -> Self {
        Self { number, words: Box::new([0; WORDS]) }
    }

    /// The page and the bit of a slot.
    pub fn place(slot: Slot) -> (u32, u32) {
        (slot.0 / SLOTS_PER_PAGE, slot.0 % SLOTS_PER_PAGE)
    }

    /// The value for [`keys::allocation`].
    pub fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(4 + WORDS * 8 + 4);
        value.extend_from_slice(&[VERSION, 0, 0, 0]);
        for word in self.words.iter() {
            value.extend_from_slice(&word.to_le_bytes());
        }
        seal(&keys::allocation(self.number), &mut value);
        value
    }

    /// The value of [`keys::allocation`] of page `number`.
    pub fn parse(number: u32, value: &[u8]) -> Result<Self, FormatError> {
        let mut input = unseal(WHAT, VERSION, &keys::allocation(number), value)?;
        let _reserved: [u8; 3] = input.take()?;
        let mut page = Self::empty(number);
        for word in page.words.iter_mut() {
            *word = u64::from_le_bytes(input.take()?);
        }
        input.end()?;
        Ok(page)
    }
}
