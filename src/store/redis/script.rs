//! The scripts: each verb is one of them, so it happens at one moment or not at all.
//!
//! Values cross the border as text of fixed width where scripts compare them: a fence is 48 digits, an incarnation 32, a
//! time 16, all hexadecimal, so that the order of texts is the order of what they stand for.

use std::sync::LazyLock;

use redis::Script;

macro_rules! scripts {
    ($($prelude:literal)+: $($name:ident = $file:literal)+) => {
        scripts! { @all ($($prelude),+): $($name = $file)+ }
    };
    (@all $preludes:tt: $($name:ident = $file:literal)+) => {
        $(scripts! { @one $preludes: $name = $file })+
    };
    (@one ($($prelude:literal),+): $name:ident = $file:literal) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!($(include_str!($prelude),)+ include_str!($file)))
        });
    };
}

scripts! { "lua/memory.lua" "lua/ownership.lua":
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

scripts! { "lua/memory.lua" "lua/ledger.lua":
    BEGIN = "lua/begin.lua"
    RENEW = "lua/renew.lua"
    COMPLETE = "lua/complete.lua"
    RELEASE = "lua/release.lua"
}
