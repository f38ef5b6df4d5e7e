"""Writing and repairing programs. Import it by its whole name: ``code`` is a module of the standard library, too."""
