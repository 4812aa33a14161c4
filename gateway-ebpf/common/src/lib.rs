//! ABI between the agent and its kernel programs, and every decision that the programs take.
#![no_std]
