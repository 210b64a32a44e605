//! The states of open layers, for users, programs and monitoring. Each kind of layer with a state has a row
//! in the table below.

use std::fmt::Display;

use serde::{Deserialize, Serialize};
use volume::backend::{Figure, Layers};

use crate::raid;

/// Receives the figure tables of all layers.
pub trait Tables {
    /// Receives the figure table of one kind of layer. `of` returns the states of these layers in a volume.
    fn table<S>(&mut self, figures: &'static [Figure<S>], of: fn(&LayerStates) -> &[S]);
}

macro_rules! layers {
    ($($key:ident: $state:ty, |$layers:ident| $of:expr, $figures:expr;)*) => {
        /// The states of a volume's layers, by kind. Within a kind, the outermost layer is first.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct LayerStates {
            $(
                /// The states of this kind.
                #[serde(default, skip_serializing_if = "Vec::is_empty")]
                pub $key: Vec<$state>,
            )*
        }

        impl LayerStates {
            /// Returns the current states of a volume's layers.
            pub fn of(layers: &Layers) -> LayerStates {
                LayerStates {
                    $($key: {
                        let $layers = layers;
                        $of
                    },)*
                }
            }

            /// Returns one paragraph for each layer of the volume with this name.
            pub fn paragraphs(&self, volume: &str) -> String {
                [$(paragraphs(&self.$key, volume)),*].concat()
            }

            /// Passes the figures of all layers to `tables`.
            pub fn figures(tables: &mut impl Tables) {
                $(tables.table($figures, |states| &states.$key);)*
            }
        }
    };
}

// Each row contains: the key in the JSON of a volume; the type of the state, which prints as a paragraph; a
// function that returns the states of the open layers; and their figures.
layers! {
    raid: raid::SetState, |layers| raid::sets(layers).iter().map(|set| set.status()).collect(), raid::FIGURES;
}

fn paragraphs(states: &[impl Display], volume: &str) -> String {
    let name = |number| {
        if states.len() == 1 {
            volume.to_owned()
        } else {
            format!("{volume}/{number}")
        }
    };
    states
        .iter()
        .enumerate()
        .map(|(number, state)| format!("{}: {state}\n", name(number)))
        .collect()
}
