//! The scripts: each verb is one of them, so it happens at one moment or not at all.
//!
//! Values cross the border as text of fixed width where scripts compare them: a fence is 48 digits, an incarnation 32, a
//! time 16, all hexadecimal, so that the order of texts is the order of what they stand for.

use std::sync::LazyLock;

use redis::Script;

macro_rules! scripts {
    ($prelude:literal: $($name:ident = $file:literal)+) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(include_str!($prelude), include_str!($file)))
        });)+
    };
}

scripts! { "lua/ownership.lua":
    LOOKUP = "lua/lookup.lua"
    REGISTER = "lua/register.lua"
    CLAIM = "lua/claim.lua"
    HEARTBEAT = "lua/heartbeat.lua"
    TAKE_OVER = "lua/take_over.lua"
    BURY = "lua/bury.lua"
    TOUCH = "lua/touch.lua"
    TERMINATE = "lua/terminate.lua"
    LEAVE = "lua/leave.lua"
}

scripts! { "lua/log.lua":
    OPEN = "lua/open.lua"
    APPEND = "lua/append.lua"
    END = "lua/end.lua"
    READ = "lua/read.lua"
    SEAL = "lua/seal.lua"
}
