"""The paper run again: its tables and figures, and studies of its schedules and of Figure 1."""
