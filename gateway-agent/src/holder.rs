//! A minimal parent process that keeps the kernel state while the worker comes and goes.
