"""What a person wants to know about a trained model, and the HTML page that shows it."""
