//! Assignment of roles to agents.
//!
//! A suite that names clients (`clients`, or `--clients` on the command line) is carried out as it says:
//! client 1 is the first agent. Any other suite is carried out by all agents at once, each in a separate part
//! of the span, since machines that read the same blocks would get cache hits from each other's reads.

use bench::plan::{Role, Step, Suite};

/// Gives each agent its roles.
pub fn spread(mut suite: Suite, agents: usize) -> Suite {
    if suite.clients() > 1 || agents < 2 {
        return suite;
    }
    for step in &mut suite.steps {
        let Step::Measure { cells, .. } = step else { continue };
        for cell in cells {
            let roles = std::mem::take(&mut cell.roles);
            cell.roles =
                (0..agents as u16).flat_map(|agent| roles.iter().map(move |role| on(agent, role))).collect();
        }
    }
    suite
}

/// The same role, with places and data of its own.
fn on(agent: u16, role: &Role) -> Role {
    let mut role =
        Role { client: agent, apart: true, name: format!("{} {}", role.name, agent + 1), ..role.clone() };
    role.workload.seed = role.workload.seed.wrapping_add(u64::from(agent));
    role
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::plan::{Cell, Order, Percent, Stop, Workload};

    fn suite(clients: u16) -> Suite {
        let role =
            |client| Role::new("reader", client, Workload::simple(4096, 8, Percent::ALL, Percent::ALL));
        let cell = Cell::new("read", "read", (0..clients).map(role).collect());
        let step = Step::Measure { stop: Stop::after(1.0), order: Order::Once, cells: vec![cell] };
        let (name, title, about) = ("x".to_owned(), String::new(), String::new());
        Suite { name, title, about, document: None, assumed: Vec::new(), steps: vec![step] }
    }

    #[test]
    fn a_suite_that_names_clients_stays_as_it_is() {
        assert_eq!(spread(suite(2), 3), suite(2));
        assert_eq!(spread(suite(1), 1), suite(1));
    }

    #[test]
    fn any_other_is_carried_out_by_all_with_seeds_and_parts_of_their_own() {
        let spread = spread(suite(1), 3);
        let cell = spread.cells().next().expect("a cell");
        let roles: Vec<_> = cell
            .roles
            .iter()
            .map(|role| (role.name.as_str(), role.client, role.workload.seed, role.apart))
            .collect();
        assert_eq!(roles, [("reader 1", 0, 1, true), ("reader 2", 1, 2, true), ("reader 3", 2, 3, true)]);
    }
}
