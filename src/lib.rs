pub mod lifecycle;
pub mod model;
