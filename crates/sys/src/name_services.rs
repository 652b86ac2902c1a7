/// Makes a static program with glibc look names up in files and by DNS alone. What
/// `/etc/nsswitch.conf` names besides is loaded at run time, with the C library of the host: with
/// another version of it the process ends by a signal at the first name (glibc's manual, "Actions
/// in the NSS configuration").
pub fn look_up_without_modules() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        use std::ffi::{c_char, c_int};
        unsafe extern "C" {
            fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
        }
        for (database, services) in [
            (c"hosts", c"files dns"),
            (c"passwd", c"files"),
            (c"group", c"files"),
        ] {
            // SAFETY: both are C strings, and static.
            unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
        }
    }
}
