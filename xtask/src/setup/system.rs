//! What the operating system provides: installed by apt on Debian, asked for in one sentence elsewhere.

use super::Done;
use crate::process::{Context, Result, output, run};
use std::path::PathBuf;
use std::process::Command;

/// Whether this is Debian itself; its descendants package other compilers.
pub(super) fn is_debian() -> bool {
    std::fs::read_to_string("/etc/os-release")
        .is_ok_and(|text| text.lines().any(|line| line == "ID=debian" || line == "ID=\"debian\""))
}

/// Whether apt can install what is not specific to Debian.
pub(super) fn has_apt(context: &Context) -> bool {
    cfg!(target_os = "linux") && context.find("apt-get").is_some() && context.find("dpkg-query").is_some()
}

/// A command run as root: directly, or by sudo.
pub(super) fn as_root(context: &Context, program: &str) -> Result<Command> {
    if output(context.command("id").arg("-u"))?.trim() == "0" {
        return Ok(context.command(program));
    }
    if context.find("sudo").is_none() {
        return Err(format!(
            "`{program}` must run as root and there is no sudo; run `cargo xtask setup` once as root"
        ));
    }
    let mut sudo = context.command("sudo");
    // Without a terminal nobody could type a password: fail at once instead of waiting.
    if std::env::var_os("CI").is_some() {
        sudo.arg("-n");
    } else {
        sudo.stdin(std::process::Stdio::inherit());
    }
    sudo.arg(program);
    Ok(sudo)
}

/// Installs the packages that are missing.
pub(super) fn ensure_packages(context: &Context, packages: &[&str]) -> Result<()> {
    let installed = |package: &str| {
        output(context.command("dpkg-query").args(["-W", "-f=${Status}", package]))
            .is_ok_and(|status| status.trim() == "install ok installed")
    };
    let missing: Vec<&str> = packages.iter().copied().filter(|package| !installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("   installing with apt: {}", missing.join(" "));
    let by_hand = || format!("as root, run `apt-get update && apt-get install -y {}`", missing.join(" "));
    let apt = |arguments: &[&str]| -> Result<()> {
        let mut command =
            as_root(context, "env").map_err(|sentence| format!("{sentence}; or, {}", by_hand()))?;
        command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]).args(arguments);
        run(&mut command).map_err(|sentence| format!("{sentence}; to do it by hand, {}", by_hand()))
    };
    apt(&["-qq", "update"])?;
    let mut install = vec!["-qq", "-o", "Dpkg::Use-Pty=0", "install", "-y", "--no-install-recommends"];
    install.extend(&missing);
    apt(&install)
}

/// Chromium's path: `$CHROMIUM`, or the first of its usual names.
pub(crate) fn chromium(context: &Context) -> Option<PathBuf> {
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    named.or_else(|| {
        ["chromium", "chromium-browser", "google-chrome"].iter().find_map(|name| context.find(name))
    })
}

/// The driver's path: `$CHROMEDRIVER`, or the one in `PATH`.
pub(crate) fn chromedriver(context: &Context) -> Option<PathBuf> {
    std::env::var_os("CHROMEDRIVER").map(PathBuf::from).or_else(|| context.find("chromedriver"))
}

/// A browser for the page's tests.
pub(super) fn ensure_browser(context: &Context) -> Result<Done> {
    let both = |context: &Context| Some((chromium(context)?, chromedriver(context)?));
    if let Some((browser, _)) = both(context) {
        return Ok(Done::Present(browser.display().to_string()));
    }
    if has_apt(context) && is_debian() {
        ensure_packages(context, &["chromium", "chromium-driver"])?;
    }
    match both(context) {
        Some((browser, _)) => Ok(Done::Made(browser.display().to_string())),
        None => Err(
            "Chromium (or Chrome) and the chromedriver of its version are needed: install both, and name \
             them in the variables CHROMIUM and CHROMEDRIVER where they are not in PATH"
                .into(),
        ),
    }
}

/// Firefox's path: `$FIREFOX`, or the first of its usual names.
pub(crate) fn firefox(context: &Context) -> Option<PathBuf> {
    let named = std::env::var_os("FIREFOX").map(PathBuf::from);
    named.or_else(|| ["firefox-esr", "firefox"].iter().find_map(|name| context.find(name)))
}

/// Its driver's path.
pub(crate) fn geckodriver(context: &Context) -> Option<PathBuf> {
    context.find("geckodriver")
}

/// Another browser, one that has no WebGPU on Linux; set-up builds its driver.
pub(super) fn ensure_firefox(context: &Context) -> Result<Done> {
    if let Some(browser) = firefox(context) {
        return Ok(Done::Present(browser.display().to_string()));
    }
    if has_apt(context) && is_debian() {
        ensure_packages(context, &["firefox-esr"])?;
    }
    match firefox(context) {
        Some(browser) => Ok(Done::Made(browser.display().to_string())),
        None => Err("Firefox 128 or newer is needed: install it, and name it in the variable FIREFOX where it is not \
                     in PATH"
            .into()),
    }
}

/// A Vulkan driver; in software where there is no other.
pub(super) fn ensure_vulkan(context: &Context) -> Result<Done> {
    if !cfg!(target_os = "linux") {
        return Ok(Done::Present("the system's own graphics interface is used".into()));
    }
    let drivers = || {
        let folders = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"];
        let named = std::env::var_os("VK_DRIVER_FILES").or_else(|| std::env::var_os("VK_ICD_FILENAMES"));
        let listed = folders
            .iter()
            .any(|folder| std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()));
        named.is_some() || listed
    };
    let loader = || {
        output(context.command("/sbin/ldconfig").arg("-p")).is_ok_and(|text| text.contains("libvulkan.so.1"))
    };
    if drivers() && loader() {
        return Ok(Done::Present("driver and loader".into()));
    }
    if has_apt(context) {
        ensure_packages(context, &["mesa-vulkan-drivers", "libvulkan1"])?;
    }
    if drivers() && loader() {
        return Ok(Done::Made("Mesa's software driver".into()));
    }
    Err("a Vulkan loader (libvulkan.so.1) and a driver are needed; Mesa's llvmpipe is enough".into())
}

/// libFuzzer is C++.
pub(super) fn ensure_cxx(context: &Context) -> Result<Done> {
    let has = || {
        std::env::var_os("CXX").is_some()
            || ["c++", "g++", "clang++"].iter().any(|name| context.find(name).is_some())
    };
    if has() {
        return Ok(Done::Present("found".into()));
    }
    if has_apt(context) {
        ensure_packages(context, &["g++"])?;
    }
    if has() {
        Ok(Done::Made("g++".into()))
    } else {
        Err("install a C++ compiler (g++ or clang++) and put it in PATH".into())
    }
}
