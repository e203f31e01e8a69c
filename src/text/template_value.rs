//! Checks on values while a chat template runs: nothing gets deeper than the stack allows, and looking costs fuel.
//!
//! The scan of the source puts them where a value can grow from step to step: at `set` and at the left of `+` and `*`.

use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, escape_formatter};

use super::template_scan::{CHECK_HELD, CHECK_VALUE};

/// Deepest value that a variable may hold or that is written.
const MAX_DEPTH: usize = 64;
/// Values looked at for one unit of fuel, which is the price of an instruction.
const VALUES_PER_FUEL: u64 = 16;

/// Sets up the checks.
pub(super) fn add_checks(environment: &mut Environment<'_>) {
    environment.add_filter(CHECK_VALUE, |state: &State<'_, '_>, value: Value| checked(state, value, true));
    environment.add_filter(CHECK_HELD, |state: &State<'_, '_>, value: Value| checked(state, value, false));
    // These add lists without a `+` that the scan sees; nobody's templates use them on lists.
    environment.remove_filter("chain");
    environment.remove_filter("sum");
    environment.set_formatter(|out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value| {
        if !value.is_undefined() {
            Walk { state, seen: 0 }.look(value, 0, true)?;
        }
        escape_formatter(out, state, value)
    });
}

/// The value, if it is not too deep. Lazy lists become lists: adding those without end would make walking them endless,
/// at no cost that Jinja charges.
fn checked(state: &State<'_, '_>, value: Value, may_be_namespace: bool) -> Result<Value, Error> {
    let mut walk = Walk { state, seen: 0 };
    walk.look(&value, 0, may_be_namespace)?;
    if value.kind() == ValueKind::Iterable {
        return Ok(value.try_iter()?.collect::<Vec<Value>>().into());
    }
    Ok(value)
}

fn refuse(detail: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail)
}

struct Walk<'w, 't, 'e> {
    state: &'w State<'t, 'e>,
    seen: u64,
}

impl Walk<'_, '_, '_> {
    fn look(&mut self, value: &Value, depth: usize, may_be_namespace: bool) -> Result<(), Error> {
        self.seen += 1;
        if self.seen.is_multiple_of(VALUES_PER_FUEL) {
            self.state.consume_fuel(1)?;
        }
        if depth > MAX_DEPTH {
            return Err(refuse(format!("a value is nested more than {MAX_DEPTH} deep")));
        }
        let is_namespace =
            value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"));
        if is_namespace && !may_be_namespace {
            return Err(refuse("a namespace cannot be held by another value".into()));
        }
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                for item in value.try_iter()? {
                    self.look(&item, depth + 1, false)?;
                }
            }
            ValueKind::Map => {
                for key in value.try_iter()? {
                    self.look(&key, depth + 1, false)?;
                    self.look(&value.get_item(&key)?, depth + 1, false)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
