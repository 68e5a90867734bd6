//! Headers of `.npy` files, formats 1.0 to 3.0 (`numpy.lib.format`): a magic string, a version, a length, and a Python
//! dictionary with the type, the order and the shape of one array.

use crate::storage::ElementType;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Bytes of the longest dictionary that is parsed. NumPy writes fewer than 200 for arrays of numbers.
const LONGEST: usize = 64 << 10;
/// Largest number of dimensions of an array (NumPy 2 has the same limit).
const MOST_DIMENSIONS: usize = 64;

/// Header of an `.npy` file whose array has a type that tables can hold, in row-major order.
///
/// # Examples
///
/// ```
/// use warpbell::storage::{ElementType, NpyHeader};
///
/// let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
/// file.extend(format!("{:117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (1000, 128), }").bytes());
/// let header = NpyHeader::parse(&file)?;
/// assert_eq!((header.element(), header.shape(), header.data_offset()), (ElementType::F32, &[1000, 128][..], 128));
/// # Ok::<(), warpbell::storage::NpyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NpyHeader {
    element: ElementType,
    shape: Vec<u64>,
    data_offset: u64,
}

/// Reason why an `.npy` file is not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
    /// The file does not begin as an `.npy` file.
    #[error("is no .npy file: it does not begin with \\x93NUMPY; save the array with numpy.save")]
    Magic,
    /// A format that this version does not know.
    #[error("has the .npy format {0}.{1}, and this program knows 1.0, 2.0 and 3.0; save the array again")]
    Version(u8, u8),
    /// The file ends within its header.
    #[error("is cut short: its header has {needed} bytes, and {found} are there; copy or save the file again")]
    Short {
        /// Bytes of the header.
        needed: usize,
        /// Bytes of the file.
        found: usize,
    },
    /// A header that is longer than any header of numbers.
    #[error("has a header of {0} bytes, and headers of numbers have {LONGEST} at most; save the array again")]
    Long(usize),
    /// A header that is no dictionary with the three keys.
    #[error("has a damaged header at byte {at} of its dictionary: {reason}; save the array again")]
    Syntax {
        /// Byte of the dictionary at which it is not as expected.
        at: usize,
        /// Description of what is expected.
        reason: &'static str,
    },
    /// Elements of a type that tables do not have.
    #[error(
        "has elements of the type {found} ({what}): tables hold integers of 8 to 64 bits and floats of 16 to 64 bits, little-endian; {remedy}"
    )]
    Type {
        /// The type as the header names it.
        found: String,
        /// The type in words.
        what: &'static str,
        /// Operation of NumPy that makes an array which tables can hold.
        remedy: &'static str,
    },
    /// Elements that the header describes as raw bytes, without a type of theirs.
    #[error("has elements of the type {found}: {}; name their type, or {}", raw_words(*.bytes), raw_remedy(*.bytes))]
    Raw {
        /// The type as the header names it.
        found: String,
        /// Bytes of an element.
        bytes: u64,
    },
    /// Elements that are of another type than the program names.
    #[error(
        "has elements of the type {found}, not {wanted}: only raw bytes are taken as a type of their size, and '<u2' as bf16; leave the type out, or convert the array before it is saved"
    )]
    Other {
        /// The type as the header names it.
        found: String,
        /// The type that the program names.
        wanted: ElementType,
    },
    /// An array whose first dimension changes fastest.
    #[error("is in Fortran order, so its rows are not in one piece; save numpy.ascontiguousarray of it")]
    Order,
}

/// Returns what raw bytes may be. NumPy has no name for the types of other packages.
fn raw_words(bytes: u64) -> String {
    match bytes {
        1 => "a raw byte, as NumPy writes floats of 8 bits".to_owned(),
        2 => "2 raw bytes, as NumPy writes bfloat16".to_owned(),
        _ => format!("{bytes} raw bytes, which may be anything"),
    }
}

/// Returns the operation that gives raw bytes a type. `astype` would parse the bytes as text.
fn raw_remedy(bytes: u64) -> &'static str {
    match bytes {
        1 => "save array.view(\"uint8\")",
        2 => "save array.view(ml_dtypes.bfloat16).astype(\"float32\"), or array.view(\"uint16\") for the bits",
        _ => "save a view of the array that names it, such as array.view(\"uint8\")",
    }
}

impl NpyHeader {
    /// Parses the header at the start of `bytes`. Bytes behind it are not looked at.
    ///
    /// # Errors
    /// Every [`NpyError`] but [`NpyError::Other`]. [`NpyError::Short`] says how many bytes are needed.
    #[cfg(feature = "internals")]
    pub fn parse(bytes: &[u8]) -> Result<Self, NpyError> {
        Self::parse_as(bytes, None)
    }

    /// Parses a header as [`NpyHeader::parse`] does, and takes raw bytes of the size of `wanted` as that type: NumPy has no
    /// name for bfloat16 and for floats of 8 bits. `uint16` is taken as [`ElementType::Bf16`], too.
    ///
    /// # Errors
    /// Every [`NpyError`]. [`NpyError::Other`] if the elements are of another type: they are not converted.
    pub fn parse_as(bytes: &[u8], wanted: Option<ElementType>) -> Result<Self, NpyError> {
        if bytes.len() < MAGIC.len() && MAGIC.starts_with(bytes) {
            return Err(NpyError::Short { needed: MAGIC.len() + 2, found: bytes.len() });
        }
        let rest = bytes.strip_prefix(MAGIC).ok_or(NpyError::Magic)?;
        let short = |needed: usize| NpyError::Short { needed, found: bytes.len() };
        let Some((&[major, minor], rest)) = rest.split_first_chunk() else { return Err(short(MAGIC.len() + 2)) };
        let (width, length) = match (major, minor) {
            (1, 0) => (2, rest.first_chunk().map(|b| u16::from_le_bytes(*b).into())),
            (2 | 3, 0) => (4, rest.first_chunk().map(|b| u32::from_le_bytes(*b))),
            _ => return Err(NpyError::Version(major, minor)),
        };
        let start = MAGIC.len() + 2 + width;
        let length = length.ok_or_else(|| short(start))? as usize;
        if length > LONGEST {
            return Err(NpyError::Long(length));
        }
        let text = rest.get(width..width + length).ok_or_else(|| short(start + length))?;
        let (element, shape) = Cursor { text, at: 0, wanted }.header()?;
        Ok(Self { element, shape, data_offset: (start + length) as u64 })
    }

    /// Returns the type of the elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// Returns the dimensions; none for a single number.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the byte of the file at which the elements begin.
    pub fn data_offset(&self) -> u64 {
        self.data_offset
    }

    /// Returns the bytes of all elements, or `None` if no file is so large.
    pub fn data_bytes(&self) -> Option<u64> {
        let each = u64::from(self.element.bytes().unwrap_or(0));
        // A dimension of 0 makes the array empty, whatever the others are.
        if self.shape.contains(&0) {
            return Some(0);
        }
        self.shape.iter().try_fold(each, |bytes, n| bytes.checked_mul(*n))
    }

    /// Bytes at the start of a file that hold every header that [`NpyHeader::parse`] accepts.
    pub(crate) const MOST_BYTES: usize = LONGEST + 12;
}

/// Parser of the dictionary.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    /// Type that raw bytes are taken as.
    wanted: Option<ElementType>,
}

impl<'a> Cursor<'a> {
    fn header(mut self) -> Result<(ElementType, Vec<u64>), NpyError> {
        let (mut element, mut order, mut shape) = (None, None, None);
        self.expect(b'{', "a dictionary begins with {")?;
        while !self.take(b'}') {
            let key = self.string()?;
            self.expect(b':', "a colon follows a key")?;
            let is_new = match key {
                b"descr" => element.replace(self.element()?).is_none(),
                b"fortran_order" => order.replace(self.boolean()?).is_none(),
                b"shape" => shape.replace(self.tuple()?).is_none(),
                _ => return self.wrong("the keys are descr, fortran_order and shape"),
            };
            if !is_new {
                return self.wrong("a key is there twice");
            }
            if !self.take(b',') {
                self.expect(b'}', "a comma or } follows a value")?;
                break;
            }
        }
        self.blanks();
        if self.at != self.text.len() {
            return self.wrong("only blanks follow the dictionary");
        }
        match (element, order, shape) {
            (Some(_), Some(true), Some(_)) => Err(NpyError::Order),
            (Some(element), Some(false), Some(shape)) => Ok((element, shape)),
            _ => self.wrong("the keys are descr, fortran_order and shape, and one is missing"),
        }
    }

    fn wrong<T>(&self, reason: &'static str) -> Result<T, NpyError> {
        Err(NpyError::Syntax { at: self.at, reason })
    }

    fn blanks(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    /// Skips blanks, and the character if it follows.
    fn take(&mut self, c: u8) -> bool {
        self.blanks();
        let is_there = self.text.get(self.at) == Some(&c);
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, c: u8, reason: &'static str) -> Result<(), NpyError> {
        if self.take(c) { Ok(()) } else { self.wrong(reason) }
    }

    fn string(&mut self) -> Result<&'a [u8], NpyError> {
        let quote = if self.take(b'\'') {
            b'\''
        } else if self.take(b'"') {
            b'"'
        } else {
            return self.wrong("a string in quotes follows");
        };
        let rest = &self.text[self.at..];
        match rest.iter().position(|c| matches!(c, b'\\' | b'\n') || *c == quote) {
            Some(length) if rest[length] == quote => {
                self.at += length + 1;
                Ok(&rest[..length])
            }
            _ => self.wrong("a string ends with its quote and has no escapes"),
        }
    }

    fn boolean(&mut self) -> Result<bool, NpyError> {
        self.blanks();
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        self.wrong("True or False follows")
    }

    fn tuple(&mut self) -> Result<Vec<u64>, NpyError> {
        let mut numbers = Vec::new();
        self.expect(b'(', "a tuple begins with (")?;
        while !self.take(b')') {
            if numbers.len() == MOST_DIMENSIONS {
                return self.wrong("an array has 64 dimensions at most");
            }
            numbers.push(self.number()?);
            if !self.take(b',') {
                // `(5)` is a number in parentheses, and no tuple.
                if numbers.len() == 1 {
                    return self.wrong("a comma follows the only dimension");
                }
                self.expect(b')', "a comma or ) follows a dimension")?;
                break;
            }
        }
        Ok(numbers)
    }

    fn number(&mut self) -> Result<u64, NpyError> {
        self.blanks();
        let digits = self.text[self.at..].iter().take_while(|c| c.is_ascii_digit()).count();
        let text = std::str::from_utf8(&self.text[self.at..self.at + digits]).unwrap_or_default();
        let Ok(number) = text.parse() else { return self.wrong("a dimension is a whole number below 2^64") };
        self.at += digits;
        // NumPy under Python 2 wrote `3L`.
        self.at += usize::from(self.text.get(self.at) == Some(&b'L'));
        Ok(number)
    }

    fn element(&mut self) -> Result<ElementType, NpyError> {
        self.blanks();
        if self.text.get(self.at) == Some(&b'[') {
            return Err(NpyError::Type {
                found: "record".to_owned(),
                what: "several fields",
                remedy: "save one field, or numpy.lib.recfunctions.structured_to_unstructured of it",
            });
        }
        let name = self.string()?;
        let found = || format!("'{}'", crate::units::visible(&String::from_utf8_lossy(name)));
        let refuse = |what, remedy| Err(NpyError::Type { found: found(), what, remedy });
        let (order, kind) = match name.split_first() {
            Some((order @ (b'<' | b'>' | b'|' | b'='), kind)) => (*order, kind),
            _ => (b'=', name),
        };
        let element = match kind {
            b"u1" => ElementType::U8,
            b"u2" => ElementType::U16,
            b"u4" => ElementType::U32,
            b"u8" => ElementType::U64,
            b"i1" => ElementType::I8,
            b"i2" => ElementType::I16,
            b"i4" => ElementType::I32,
            b"i8" => ElementType::I64,
            b"f2" => ElementType::F16,
            b"f4" => ElementType::F32,
            b"f8" => ElementType::F64,
            // NumPy writes float8_e5m2 so, and does not read it.
            b"f1" => return self.raw(1, found()),
            b"f16" | b"f12" => {
                return refuse("floats of more than 64 bits", "round them with array.astype(\"float64\")");
            }
            [b'b', ..] | b"?" => return refuse("truth values", "save array.view(\"uint8\")"),
            b"c8" => {
                return refuse("complex numbers", "save array.view(\"float32\"): real and imaginary parts in turn");
            }
            [b'c', ..] => {
                return refuse("complex numbers", "save array.view(\"float64\"): real and imaginary parts in turn");
            }
            [b'O', ..] => return refuse("Python objects", "save numpy.array(array.tolist(), \"float32\")"),
            [b'S' | b'a' | b'U', ..] => {
                return refuse("text", "parse numbers with array.astype(\"float64\"), or number the words");
            }
            [b'M' | b'm', ..] => return refuse("times", "save array.view(\"int64\"): counts of the unit"),
            [b'V', digits @ ..] => match std::str::from_utf8(digits).ok().and_then(|d| d.parse().ok()) {
                Some(bytes @ 1..) => return self.raw(bytes, found()),
                _ => return refuse("raw bytes without a size", "save a view of the array that names their type"),
            },
            _ => return refuse("unknown", "save an array of one of these types"),
        };
        match (order, element.bytes()) {
            (_, Some(1)) | (b'<', _) => {}
            (b'>', _) => return refuse("big-endian", "save array.astype(array.dtype.newbyteorder(\"<\"))"),
            _ => return refuse("of an order of bytes that is not named", "save the array again with numpy.save"),
        }
        match self.wanted {
            Some(ElementType::Bf16) if element == ElementType::U16 => Ok(ElementType::Bf16),
            Some(wanted) if wanted != element => Err(NpyError::Other { found: found(), wanted }),
            _ => Ok(element),
        }
    }

    /// Returns the type that the program names for raw bytes.
    fn raw(&self, bytes: u64, found: String) -> Result<ElementType, NpyError> {
        match self.wanted {
            None => Err(NpyError::Raw { found, bytes }),
            Some(wanted) if wanted.bytes().map(u64::from) == Some(bytes) => Ok(wanted),
            Some(wanted) => Err(NpyError::Other { found, wanted }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a file with this dictionary in one of the three formats, padded as NumPy does.
    fn file(version: u8, dictionary: &str) -> Vec<u8> {
        let width = if version == 1 { 2 } else { 4 };
        let length = (8 + width + dictionary.len() + 1).next_multiple_of(64) - 8 - width;
        let mut bytes = [MAGIC, &[version, 0]].concat();
        bytes.extend(&(length as u32).to_le_bytes()[..width]);
        bytes.extend(format!("{dictionary:0$}\n", length - 1).bytes());
        bytes
    }

    fn refused(dictionary: &str) -> String {
        NpyHeader::parse(&file(1, dictionary)).unwrap_err().to_string()
    }

    #[test]
    fn headers_as_numpy_writes_them_are_read() {
        for version in 1..=3 {
            let bytes = file(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (1000, 128), }");
            let header = NpyHeader::parse(&bytes).unwrap();
            assert_eq!((header.element(), header.shape()), (ElementType::F32, &[1000, 128][..]));
            assert_eq!((header.data_offset(), header.data_bytes()), (bytes.len() as u64, Some(512_000)));
            assert_eq!(header.data_offset() % 64, 0);
        }
        let older = NpyHeader::parse(&file(1, "{\"shape\":(3L,),\"descr\":\"|u1\",\"fortran_order\":False}")).unwrap();
        assert_eq!((older.element(), older.shape()), (ElementType::U8, &[3][..]));
        let scalar = NpyHeader::parse(&file(1, "{'descr': '<i8', 'fortran_order': False, 'shape': (), }")).unwrap();
        assert_eq!((scalar.shape(), scalar.data_bytes()), (&[][..], Some(8)));
    }

    #[test]
    fn what_tables_cannot_hold_is_named_with_an_operation_that_keeps_the_values() {
        for (descr, words) in [
            ("'>f4'", "'>f4' (big-endian)"),
            ("'>f4'", "astype(array.dtype.newbyteorder(\"<\"))"),
            ("'<f16'", "astype(\"float64\")"),
            ("'|b1'", "truth values"),
            ("'<c8'", "view(\"float32\")"),
            ("'<c16'", "view(\"float64\")"),
            ("'|O'", "Python objects"),
            ("'<U7'", "text"),
            ("'<M8[ns]'", "view(\"int64\")"),
            ("'f4'", "order of bytes"),
            ("'<u3'", "unknown"),
            ("'|V'", "without a size"),
            ("[('a', '<f4'), ('b', '<f4')]", "several fields"),
        ] {
            let text = refused(&format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (3, 4), }}"));
            assert!(text.contains(words), "{descr}: {text}");
        }
        assert!(refused("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }").contains("Fortran order"));
    }

    #[test]
    fn raw_bytes_are_of_the_type_that_is_named() {
        use ElementType::{Bf16, F16, F32, I16, U8, U16};
        let parse = |descr: &str, wanted| {
            let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (3, 64), }}");
            NpyHeader::parse_as(&file(1, &text), wanted).map(|header| header.element())
        };
        // As numpy 2.4 writes float16, bfloat16, float8_e4m3fn and float8_e5m2.
        assert_eq!(parse("<f2", None), Ok(F16));
        assert_eq!(parse("<V2", Some(Bf16)), Ok(Bf16));
        assert_eq!(parse("<V1", Some(U8)), Ok(U8));
        assert_eq!(parse("<f1", Some(U8)), Ok(U8));
        assert_eq!(parse("|V2", Some(U16)), Ok(U16));
        // The advice for bfloat16 that has to keep its bits.
        assert_eq!(parse("<u2", Some(Bf16)), Ok(Bf16));
        for (descr, words) in [
            ("<V1", "save array.view(\"uint8\")"),
            ("<f1", "save array.view(\"uint8\")"),
            ("<V2", "array.view(ml_dtypes.bfloat16).astype(\"float32\"), or array.view(\"uint16\")"),
            ("|V12", "12 raw bytes"),
        ] {
            let text = parse(descr, None).unwrap_err().to_string();
            assert!(text.contains(words) && !text.contains("save array.astype"), "{descr}: {text}");
        }
        // Bytes of another size are no such elements, and numbers are not converted.
        for (descr, wanted) in [("<V2", U8), ("<V1", Bf16), ("<f4", Bf16), ("<u2", F16), ("<i2", U16), ("<f2", I16)] {
            let text = parse(descr, Some(wanted)).unwrap_err().to_string();
            assert!(text.contains(descr) && text.contains(&format!("not {wanted}")), "{descr}: {text}");
        }
        assert_eq!(parse("<f4", Some(F32)), Ok(F32));
    }

    #[test]
    fn damage_is_told_with_its_place() {
        let parse = |bytes: &[u8]| NpyHeader::parse(bytes).unwrap_err();
        assert_eq!(parse(b"PK\x03\x04"), NpyError::Magic);
        assert_eq!(parse(b"\x93NUMPY\x04\x00\x00\x00"), NpyError::Version(4, 0));
        assert_eq!(parse(b"\x93NUMPY\x02\x00\xff\xff\xff\xff"), NpyError::Long(u32::MAX as usize));
        let good = file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 16), }");
        for length in 0..good.len() {
            assert!(matches!(parse(&good[..length]), NpyError::Short { found, .. } if found == length), "{length}");
        }
        for (dictionary, words) in [
            ("['descr']", "begins with {"),
            ("{'descr': '<f4', 'fortran_order': False}", "one is missing"),
            ("{'descr': '<f4', 'fortran_order': no, 'shape': (1, 2)}", "True or False"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (16)}", "only dimension"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 16)}", "whole number"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551616, 16)}", "below 2^64"),
            ("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1, 2)}", "twice"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), 'more': 1}", "the keys are"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2)} x", "only blanks"),
            ("{'descr': '<f4' 'fortran_order': False, 'shape': (1, 2)}", "comma or }"),
            ("{'descr': '<f\\x34', 'fortran_order': False, 'shape': (1, 2)}", "no escapes"),
        ] {
            assert!(refused(dictionary).contains(words), "{dictionary}: {}", refused(dictionary));
        }
        let huge = file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}");
        assert_eq!(NpyHeader::parse(&huge).unwrap().data_bytes(), None);
    }

    proptest! {
        #[test]
        fn every_array_of_numbers_is_described(
            version in 1u8..=3,
            kind in 0usize..11,
            shape in prop::collection::vec(any::<u64>(), 0..9),
            order in prop::sample::subsequence(vec![0, 1, 2], 3).prop_shuffle(),
            blank in "[ \t]{0,3}",
        ) {
            let names = ["|u1", "<u2", "<u4", "<u8", "|i1", "<i2", "<i4", "<i8", "<f4", "<f8", "<f2"];
            let elements = {
                use ElementType::*;
                [U8, U16, U32, U64, I8, I16, I32, I64, F32, F64, F16]
            };
            let numbers: String = shape.iter().map(|n| format!("{n},{blank}")).collect();
            let items = [
                format!("'descr'{blank}: '{}'", names[kind]),
                format!("'fortran_order':{blank}False"),
                format!("'shape': ({numbers})"),
            ];
            let body: String = order.iter().map(|i| format!("{}{blank},", items[*i])).collect();
            let mut bytes = file(version, &format!("{blank}{{{body}{blank}}}"));
            let offset = bytes.len() as u64;
            bytes.extend([7; 9]);
            let header = NpyHeader::parse(&bytes).unwrap();
            prop_assert_eq!(header, NpyHeader { element: elements[kind], shape, data_offset: offset });
        }

        #[test]
        fn any_bytes_are_a_header_or_an_error_of_one_line(
            version in 0u8..5,
            text in prop_oneof![".{0,90}", "[{}()':,<fu48 a-zTF0-9]{0,90}"],
            cut in 0usize..200,
        ) {
            let mut bytes = file(version, &text);
            bytes.truncate(bytes.len().saturating_sub(cut));
            match NpyHeader::parse(&bytes) {
                Ok(header) => prop_assert!(header.data_offset() <= bytes.len() as u64),
                Err(e) => prop_assert!(!e.to_string().contains('\n')),
            }
        }
    }
}
