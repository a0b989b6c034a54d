fn main() -> std::process::ExitCode {
    guild_hall::cli::main()
}
